#!/usr/bin/env bash
# The main job, shown on one machine: two laptops find each other, peer after an Accept, and a web application
# of one spreads over both. `make demo` builds and calls it. The lab stays up for playing.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/bin:$PATH
LAB=${KITH_LAB:-kith}
lab() { kith-lab --lab "$LAB" "$@"; }
on() { local laptop=$1; shift; lab exec "$laptop" -- "$@"; }

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
began=$(date +%s%N)
times=()
step_began=$began step_name=''
elapsed() { awk -v a="$1" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f s", (b - a) / 1e9 }'; }
finish() {
  [ -n "$step_name" ] || return 0
  times+=("$(printf '%-64s %8s' "$step_name" "$(elapsed "$step_began")")")
  step_name=''
}
step() { finish; step_name=$1; step_began=$(date +%s%N); printf '\n%s==> %s%s\n' "$bold" "$1" "$plain"; }
show() { printf '%s%s$ %s%s\n' "$dim" "$1" "${*:2}" "$plain"; on "$@"; }
# until_ok SECONDS COMMAND...: tries again until it succeeds; the last try's output is shown when it never does.
until_ok() {
  local deadline=$((SECONDS + $1)) out; shift
  until out=$("$@" 2>&1); do
    if ((SECONDS >= deadline)); then printf 'gave up on: %s\n%s\n' "$*" "$out" >&2; return 1; fi
    sleep 0.1
  done
  printf '%s\n' "$out"
}
seen() { on "$1" kith peers -o json | grep -q "\"name\": *\"$2\""; }
pods_on() { on alice kubectl -n shop get pods -l app=web --field-selector=status.phase=Running -o jsonpath="{range .items[?(@.spec.nodeName=='$1')]}{.metadata.name} {.status.podIP}{'\n'}{end}"; }

step 'Two laptops start: alice and bob'
lab up 2 --image build/images/echo.tar --image build/images/load.tar

step 'They see each other on the LAN'
until_ok 20 seen alice bob >/dev/null
until_ok 20 seen bob alice >/dev/null
show alice kith peers

step 'Alice asks bob; both screens show the same code; bob accepts, alice confirms'
on alice kith unpeer bob --yes >/dev/null 2>&1 || true
show alice kith peer bob --cpu 500m --memory 512Mi --pods 20 --wait=false
until_ok 20 on bob sh -c 'kith requests -o json | grep -q "\"id\""' >/dev/null
show bob kith requests
code=$(on bob kith requests -o json | sed -n 's/.*"code": *"\([0-9]*\)".*/\1/p')
show bob kith accept alice --yes
# Alice gives what bob's screen shows, as he reads it out. Without a code they know each other's keys from the last time.
[ -z "$code" ] || show alice kith peer bob --code "$code"
until_ok 20 on alice sh -c 'kith peers -o json | grep -q "\"outgoing\": *\"connected\""' >/dev/null
show alice kith peers
show alice kubectl get nodes

step 'A namespace is offloaded, a web application started in it'
on alice kubectl get namespace shop >/dev/null 2>&1 || show alice kubectl create namespace shop
show alice kith offload shop
on alice kubectl -n shop apply -f - <examples/web.yaml
show alice kubectl -n shop rollout status deployment/web --timeout=60s
show alice kubectl -n shop get pods -o wide
show bob kith guests

step 'Pods call each other, both ways, through the tunnel'
read -r home home_ip < <(pods_on alice | head -n 1)
read -r away away_ip < <(pods_on kith-bob | head -n 1)
[ -n "$home_ip" ] && [ -n "$away_ip" ] || { echo "the pods did not spread over both laptops" >&2; exit 1; }
echo "from $home on alice to $away on bob ($away_ip):"
show alice kubectl -n shop exec "$home" -- /app get "http://$away_ip:8080/"
echo "and back: the pod on bob reaches the one on alice by the address that it has at home:"
back_ip=$(on alice kubectl -n shop exec "$home" -- /app get "http://$away_ip:8080/" | sed -n 's/.*"client": *"\([0-9.]*\)[":].*/\1/p')
show alice kubectl -n shop exec "$away" -- /app get "http://$back_ip:8080/"

step "kubectl works as ever: the logs of the pod on bob"
show alice kubectl -n shop logs "$away" --tail=2
finish

printf '\n%sAll of it worked. Times:%s\n' "$bold" "$plain"
printf '  %s\n' "${times[@]}"
printf '  %-64s %8s\n' 'together' "$(elapsed "$began")"
cat <<TXT

The lab is up for playing:
  bin/kith-lab exec alice -- kith status
  bin/kith-lab exec alice -- kubectl get pods -A -o wide
  bin/kith-lab exec bob -- kith guests
  bin/kith-lab cut alice bob      # and: heal alice bob
  bin/kith-lab down               # takes all of it away
TXT
