//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

// TestRedisOnThreeLaptopsOutlivesTheLossOfOne runs two of Redis and one of Sentinel on each of three laptops. Members tell each other their
// addresses, and those at bob and at carol meet by way of home. Bob loses power while the primary is there.
func TestRedisOnThreeLaptopsOutlivesTheLossOfOne(t *testing.T) {
	w := newAppsWorldOf(t, lab.Options{Laptops: 3}, "images.tar")
	befriend(t, w.alice, w.l.Laptop("carol"), appsAsk...)
	const mine, first = `$(getent hosts $HOSTNAME | awk '{print $1}')`, `$(getent hosts redis-0.redis | awk '{print $1}')`
	addresses := []string{ // instead of the names that these manifests tell
		"{maxSkew: 2,", "{maxSkew: 1,",
		"me=$HOSTNAME.redis.shop.svc.cluster.local", "me=" + mine,
		"primary=${primary:-redis-0.redis.shop.svc.cluster.local}", "until [ -n \"$primary\" ]; do primary=" + first + "; sleep 1; done",
		"sentinel announce-ip $HOSTNAME.sentinel.shop.svc.cluster.local", "sentinel announce-ip " + mine,
		"sentinel monitor shop redis-0.redis.shop.svc.cluster.local 6379 2", "sentinel monitor shop " + first + " 6379 2",
		"sentinel resolve-hostnames yes", "", "sentinel announce-hostnames yes", "",
	}
	w.app("redis.yaml", addresses...)
	eventually(t, 2*time.Minute, "redis is ready", func() string { return w.appReady("redis", 6) })
	w.app("sentinel.yaml", addresses...)
	eventually(t, 2*time.Minute, "sentinel is ready", func() string { return w.appReady("sentinel", 3) })

	pods := func(app, node string) (names []string, ip map[string]string) {
		ip = map[string]string{}
		list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": app})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if node == "" || list[i].Spec.NodeName == node {
				names, ip[list[i].Status.PodIP] = append(names, list[i].Name), list[i].Name
			}
		}
		return names, ip
	}
	home, _ := pods("sentinel", "alice")
	atBob, bobs := pods("redis", "kith-bob")
	if atCarol, _ := pods("redis", "kith-carol"); len(home) != 1 || len(atBob) != 2 || len(atCarol) != 2 {
		t.Fatalf("at bob are %v, at carol %v, Sentinel at home is %v", atBob, atCarol, home)
	}
	_, all := pods("redis", "")
	// ask gives what Sentinel, and the primary that it names, say at home.
	ask := func() (primary, state string) {
		out, err := w.in(home[0], "bash", "-c", `export REDISCLI_AUTH=$REDIS_PASSWORD
			p=$(env -u REDISCLI_AUTH redis-cli -p 26379 --raw sentinel get-master-addr-by-name shop | head -1); echo "$p"
			timeout 3 redis-cli -h "$p" info replication | tr -d '\r' | awk -F: '/^role/ { role = $2 } /state=online/ { n++ } END { print role, n + 0 }'`)
		primary, state, _ = strings.Cut(out, "\n")
		if err != nil {
			state = err.Error()
		}
		return primary, strings.TrimSpace(state)
	}
	well := func() string {
		primary, state := ask()
		if all[primary] == "" || state != "master 5" {
			return fmt.Sprintf("the primary is %q (%s), %s", primary, all[primary], state)
		}
		return ""
	}
	eventually(t, 2*time.Minute, "one leads, five follow, each known by its address", well)
	if out, err := w.in(home[0], append([]string{"bash", "/config/prefer.sh"}, atBob...)...); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	eventually(t, 2*time.Minute, "the primary is at bob", func() string {
		primary, state := ask()
		if bobs[primary] != "" {
			return ""
		}
		out, err := w.in(home[0], "redis-cli", "-p", "26379", "sentinel", "failover", "shop")
		time.Sleep(3 * time.Second)
		return fmt.Sprintf("it is %s, %s; %s %v", all[primary], state, out, err)
	})
	eventually(t, 2*time.Minute, "all follow it", well)
	was, _ := ask()

	if err := w.bob.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 90*time.Second, "another leads, and three follow", func() string {
		primary, state := ask()
		if primary == was || bobs[primary] != "" || all[primary] == "" || state != "master 3" {
			return fmt.Sprintf("the primary is %s, %s", all[primary], state)
		}
		return ""
	})
	now, _ := ask()
	t.Logf("%s leads %s after the power of bob, where %s led, failed", all[now], took.Round(100*time.Millisecond), bobs[was])
	for _, node := range []string{"alice", "kith-carol"} {
		names, _ := pods("redis", node)
		out, err := w.in(names[0], "redis-cli", "-h", now, "set", "from-"+node, "there")
		if err != nil || out != "OK" {
			t.Errorf("%s on %s writes to %s: %s %v", names[0], node, all[now], out, err)
		}
	}
	if err := w.bob.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.bob.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, "redis is ready again", func() string { return w.appReady("redis", 6) })
	_, all = pods("redis", "")
	took = eventually(t, 3*time.Minute, "those of bob follow", well)
	t.Logf("all well %s after all were ready", took.Round(100*time.Millisecond))
	for _, node := range []string{"alice", "kith-carol"} {
		if out, err := w.in(atBob[0], "redis-cli", "get", "from-"+node); err != nil || out != "there" {
			t.Errorf("%s has of what was written meanwhile: %q %v", atBob[0], out, err)
		}
	}
}

// TestPrometheusFindsPodsByTheirAddresses: with Kubernetes' discovery, as it comes, each of three scrapes all three, from home and from peers.
func TestPrometheusFindsPodsByTheirAddresses(t *testing.T) {
	w := newAppsWorldOf(t, lab.Options{Laptops: 3}, "prometheus.tar")
	befriend(t, w.alice, w.l.Laptop("carol"), appsAsk...)
	w.app("prometheus.yaml")
	eventually(t, 2*time.Minute, "prometheus is ready", func() string { return w.appReady("prometheus", 3) })
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": "prometheus"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := range list {
		want[list[i].Spec.NodeName] = list[i].Status.PodIP + " 1"
	}
	if nodes := slices.Sorted(maps.Keys(want)); !slices.Equal(nodes, []string{"alice", "kith-bob", "kith-carol"}) {
		t.Fatalf("they are on %v", nodes)
	}
	web := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DialContext: w.alice.Dial, DisableKeepAlives: true}}
	for i := range list {
		eventually(t, time.Minute, list[i].Name+" on "+list[i].Spec.NodeName+" scrapes all three", func() string {
			resp, err := web.Get("http://" + list[i].Status.PodIP + ":9090/api/v1/query?query=" + url.QueryEscape("up"))
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			var answer struct {
				Data struct {
					Result []struct {
						Metric struct{ Node, IP string }
						Value  [2]any
					}
				}
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
				return err.Error()
			}
			got := map[string]string{}
			for _, r := range answer.Data.Result {
				got[r.Metric.Node] = fmt.Sprint(r.Metric.IP, " ", r.Value[1])
			}
			if !maps.Equal(got, want) {
				return fmt.Sprintf("%v, want %v", got, want)
			}
			return ""
		})
	}
}
