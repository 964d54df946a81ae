// Adds up what the native core of tokscale parses; its own command needs another runtime and the network.
const core = require(process.argv[2]);
const total = { calls: 0, uncached_input: 0, cache_read: 0, output: 0 };
for (const m of core.parseLocalSources({ homeDir: process.argv[3], sources: ["claude"] }).messages) {
  total.calls += 1;
  total.uncached_input += m.input;
  total.cache_read += m.cacheRead;
  total.output += m.output;
}
console.log(JSON.stringify(total));
