"""Places that pages go to when they leave the working memory: host memory, disk, a process."""
