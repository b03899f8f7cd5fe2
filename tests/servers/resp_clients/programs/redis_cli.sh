#!/usr/bin/env bash
# redis-cli. Arguments: the port or the path of a socket, what the keys begin with, and options of redis-cli. Prints the lines that `resp_clients/mod.rs` expects.
set -euo pipefail
port=$1 key=$2
options=("${@:3}")
server=(-p "$port")
[ "${port:0:1}" != / ] || server=(-s "$port")

cli() { redis-cli "${server[@]}" "${options[@]}" "$@"; }
said() { echo "$1: $2"; }
# Without a terminal an answer that is nil is an empty line.
or_nil() { local answer; answer=$(cat); echo "${answer:-nil}"; }

said setex "$(cli SETEX "${key}1" 1000 '{"order":42}')"
said "set px" "$(cli SET "${key}2" '' PX 2000000)"
said ttl "$(cli TTL "${key}1")"
said pttl "$(cli PTTL "${key}2")"
said get "$(cli GET "${key}1")"
said "get missing" "$(cli GET "${key}9" | or_nil)"
said exists "$(cli EXISTS "${key}1" "${key}2" "${key}9")"
said expire "$(cli EXPIRE "${key}2" 3000)"
said "ttl moved" "$(cli TTL "${key}2")"
said del "$(cli DEL "${key}1")"
said "del again" "$(cli DEL "${key}1")"
said pipeline "$(printf '%s\n' "SETEX ${key}3 1000 a" "SETEX ${key}4 1000 b" "EXISTS ${key}3" "DEL ${key}3" "TTL ${key}3" | cli | xargs)"
said multi "$(printf '%s\n' MULTI "SETEX ${key}5 1000 a" "DEL ${key}4" "PTTL ${key}9" EXEC | cli | tail -n +5 | xargs)"
said unknown "$(cli NOSUCH "${key}1" 7)"
said arity "$(cli SETEX "${key}1" 10)"
