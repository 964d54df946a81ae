#!/usr/bin/env bash
# Provides what the tests need beyond Python: a private PostgreSQL and a Chromium.
#
# PostgreSQL runs as an unprivileged user, keeps its data outside the checkout's tracked files and
# listens on a Unix socket only; its SQLAlchemy URL is written to .cache/postgres.url.
# Where something cannot be provided the tests that need it skip and say why; with CI=true that is
# an error instead. A second run only checks that the server still answers.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CACHE="$PWD/.cache"
readonly URL_FILE="$CACHE/postgres.url"
readonly RUN_AS=${CACHEAUDIT_POSTGRES_USER:-postgres}
missing=0
apt_ready=0

lack() {
    echo "services: $1" >&2
    missing=1
}

apt_install() {
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] || return 1
    if [ "$apt_ready" = 0 ]; then
        apt-get update -qq >/dev/null 2>&1 || true
        apt_ready=1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        >/dev/null 2>&1
}

# Prints the folder that holds initdb and pg_ctl, the newest version first.
postgres_bin() {
    local folder
    for folder in $(ls -d /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin \
        /usr/local/pgsql/bin 2>/dev/null | sort -rV); do
        if [ -x "$folder/initdb" ]; then
            echo "$folder"
            return 0
        fi
    done
    if command -v initdb >/dev/null; then
        dirname "$(command -v initdb)"
        return 0
    fi
    return 1
}

as_server() {
    if [ "$(id -u)" = 0 ]; then
        runuser -u "$RUN_AS" -- env -C "$1" "${@:2}"
    else
        env -C "$1" "${@:2}"
    fi
}

# The socket path must be short (107 bytes) and reachable by the server's user, so the cluster lives
# in .cache/postgres where that works and in a private temporary folder otherwise.
cluster_folder() {
    local here="$CACHE/postgres" key
    if [ "${#here}" -lt 80 ] && { [ "$(id -u)" != 0 ] || reachable "$here"; }; then
        echo "$here"
        return
    fi
    key=$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)
    echo "${TMPDIR:-/tmp}/cacheaudit-postgres-$key"
}

reachable() {
    mkdir -p "$1"
    chown "$RUN_AS" "$1"
    chmod 700 "$1"
    runuser -u "$RUN_AS" -- test -w "$1" 2>/dev/null
}

start_postgres() {
    local bin=$1 folder
    folder=$(cluster_folder)
    mkdir -p "$folder"
    if [ "$(id -u)" = 0 ]; then
        chown "$RUN_AS" "$folder"
    fi
    chmod 700 "$folder"
    if [ ! -f "$folder/data/PG_VERSION" ]; then
        rm -rf "$folder/data"
        as_server "$folder" "$bin/initdb" --pgdata=data --username=cacheaudit --auth=trust \
            --encoding=UTF8 --locale=C --no-sync >/dev/null || return 1
    fi
    if ! as_server "$folder" "$bin/pg_ctl" --pgdata=data status >/dev/null 2>&1; then
        rm -f "$folder/data/postmaster.pid"
        # No listener on the network; durability of throw-away test data is worth nothing.
        as_server "$folder" "$bin/pg_ctl" --pgdata=data --log=log --wait --timeout=60 \
            --options="-c listen_addresses='' -c unix_socket_directories='$folder' -c port=5499 \
-c fsync=off -c max_connections=60" start >/dev/null 2>&1 || return 1
    fi
    # The tests run as another user than the server: they reach its socket, not its data.
    chmod 711 "$folder"
    "$bin/psql" --host="$folder" --port=5499 --username=cacheaudit --dbname=postgres \
        --no-psqlrc --quiet --command='select 1' >/dev/null || return 1
    printf 'postgresql+psycopg://cacheaudit@/postgres?host=%s&port=5499\n' "$folder" >"$URL_FILE"
}

provide_postgres() {
    local bin
    if [ -n "${CACHEAUDIT_TEST_POSTGRES:-}" ]; then
        return 0
    fi
    bin=$(postgres_bin) || apt_install postgresql postgresql-client || true
    if ! bin=$(postgres_bin); then
        rm -f "$URL_FILE"
        lack "PostgreSQL is missing (Debian package: postgresql). Tests marked 'postgres' will skip."
        return 0
    fi
    if [ "$(id -u)" = 0 ] && ! id "$RUN_AS" >/dev/null 2>&1; then
        useradd --system --no-create-home --shell /usr/sbin/nologin "$RUN_AS" || true
    fi
    if ! start_postgres "$bin"; then
        rm -f "$URL_FILE"
        lack "PostgreSQL did not start (log: $(cluster_folder)/log). Tests marked 'postgres' will skip."
    fi
}

provide_chromium() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null && return 0
    done
    apt_install chromium || true
    command -v chromium >/dev/null ||
        lack "Chromium is missing (Debian package: chromium). Tests marked 'browser' will skip."
}

mkdir -p "$CACHE"
exec 9>"$CACHE/services.lock"
if command -v flock >/dev/null; then
    flock 9
fi
provide_postgres 9>&-
provide_chromium 9>&-

if [ "$missing" = 1 ] && [ "${CI:-}" = true ]; then
    echo "services: CI=true, so this is an error." >&2
    exit 1
fi
