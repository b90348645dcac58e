//go:build lab && soak

package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/test/lab"
)

// traces is what a laptop has of everything that comes and goes with pods, namespaces and peers, by what it is.
type traces map[string]float64

// The kernel's, and of the disk what is one thing for each pod. Elements of nftables' sets stand many in a line.
const countTraces = `
n() { echo "$1=$2"; }
n "network namespaces" $(ls /run/netns 2>/dev/null | wc -l)
n "mounts" $(wc -l </proc/self/mountinfo)
n "links" $(ip -o link | wc -l)
n "routing rules" $(ip rule | wc -l)
n "routes" $(ip -o route show table all | wc -l)
n "nftables, words" $(nft list ruleset | wc -w)
n "cgroups" $(find /sys/fs/cgroup -mindepth 1 -type d | wc -l)
n "processes" $(ls -d /proc/[0-9]* | wc -l)
n "folders of pods" $(ls /var/lib/kith/k8s/kubelet/pods /var/lib/kith/k8s/pod-logs 2>/dev/null | wc -l)
n "addresses given" $(find /var/lib/kith/k8s/cni -type f 2>/dev/null | wc -l)
n "inotify watches of kithd and kith-k8s" $(cat /proc/$(pidof -s kithd)/fdinfo/* /proc/$(pidof -s kith-k8s)/fdinfo/* 2>/dev/null | grep -c ^inotify)
n "MB of logs" $(du -sm /var/log | cut -f1)
n "MB of /run" $(du -sm /run 2>/dev/null | cut -f1)
for p in kithd kith-k8s containerd; do n "$p: MB of memory" $(awk '/^RssAnon/{print int($2/1024)}' /proc/$(pidof -s $p)/status); done
`

// tracesOf counts them.
func (w *world) tracesOf(p *lab.Laptop) (traces, error) {
	all := traces{}
	out, _, err := p.Exec(w.t.Context(), "bash", "-c", countTraces)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		what, number, _ := strings.Cut(strings.TrimSpace(line), "=")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q", p.Name(), line)
		}
		all[what] = value
	}
	for _, name := range []string{"state.db", "state.db-wal"} {
		if st, err := os.Stat(p.Path("/var/lib/kith/k8s/db/" + name)); err == nil {
			all["MB of database and log"] += float64(st.Size()) / (1 << 20)
		}
	}
	server, err := w.serverMetrics(p)
	if err != nil {
		return nil, err
	}
	for program, families := range map[string]map[string]*dto.MetricFamily{"kithd": scrape(w.t, p), "kith-k8s": server} {
		for name, what := range map[string]string{"go_goroutines": "goroutines", "process_open_fds": "open files"} {
			for _, m := range families[name].GetMetric() {
				all[program+": "+what] = m.GetGauge().GetValue()
			}
		}
	}
	for _, m := range server["apiserver_longrunning_requests"].GetMetric() {
		if label(m, "verb") == "WATCH" {
			all["watches"] += m.GetGauge().GetValue()
		}
	}
	return all, w.countObjects(p, all)
}

// countObjects counts those of each kind, but for events, which are kept for an hour.
func (w *world) countObjects(p *lab.Laptop, into traces) error {
	kinds, err := p.Kubectl(w.t.Context(), "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return err
	}
	var ask []string
	for kind := range strings.FieldsSeq(kinds) {
		if kind != "events" && !strings.HasPrefix(kind, "events.") && !strings.HasSuffix(kind, ".metrics.k8s.io") {
			ask = append(ask, kind)
		}
	}
	list, err := p.Kubectl(w.t.Context(), "get", strings.Join(ask, ","), "-A", "-o", "name")
	if err != nil {
		return err
	}
	for line := range strings.FieldsSeq(list) {
		kind, _, _ := strings.Cut(line, "/")
		into["objects: "+kind]++
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// serverMetrics are those of the engine, whose parts are one process.
func (w *world) serverMetrics(p *lab.Laptop) (map[string]*dto.MetricFamily, error) {
	text, err := os.ReadFile(p.Path(lab.Kubeconfig))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	config.Dial, config.Timeout = p.Dial, 30*time.Second
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	resp, err := c.Get(config.Host + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("%s: metrics: %s: %s", p.Name(), resp.Status, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(resp.Body)
}

// allowed is how much more there may be of something than there was. What is counted in things must be what it was, but for a
// few that the laptop has at one moment and not at the next; memory and files are bounded.
func allowed(what string, was float64) float64 {
	switch {
	case strings.HasSuffix(what, "MB of memory"):
		return max(40, was/2) // what Go keeps for the next
	case what == "MB of logs":
		return 60 // they are rotated
	case what == "MB of database and log":
		return 40 // the newest ten thousand events
	case what == "MB of /run":
		return 4
	case strings.HasSuffix(what, "goroutines"):
		return max(40, was/20)
	case strings.HasSuffix(what, "open files"):
		return 12
	case what == "processes", what == "watches":
		return 4
	case what == "nftables, words":
		return 20
	}
	return 1
}

// grown lists what there is more of than there was, and should not be.
func grown(was, is traces) (list []string) {
	for _, what := range slices.Sorted(maps.Keys(is)) {
		if is[what] > was[what]+allowed(what, was[what]) {
			list = append(list, fmt.Sprintf("%s: %.0f, and were %.0f", what, is[what], was[what]))
		}
	}
	return list
}

// table shows both, of all that is not nothing.
func (was traces) table(is traces) string {
	var b strings.Builder
	for _, what := range slices.SortedFunc(maps.Keys(is), func(a, b string) int { return cmp.Compare(a, b) }) {
		if was[what] != 0 || is[what] != 0 {
			fmt.Fprintf(&b, "%9.0f %9.0f  %s\n", was[what], is[what], what)
		}
	}
	return b.String()
}

// leavesNoTrace looks at both laptops, has something done, and waits until there is no more of anything than before.
func (w *world) leavesNoTrace(t *testing.T, within time.Duration, do func()) {
	t.Helper()
	laptops := []*lab.Laptop{w.alice, w.bob}
	look := func() (all []traces) {
		for _, p := range laptops {
			one, err := w.tracesOf(p)
			if err != nil {
				t.Log(err)
				return nil
			}
			all = append(all, one)
		}
		return all
	}
	time.Sleep(time.Minute) // what was done before settles
	before := look()
	if before == nil {
		t.Fatal("nothing could be counted")
	}
	do()
	var after []traces
	defer func() {
		for i, is := range after {
			t.Logf("%s, before and after:\n%s", laptops[i].Name(), before[i].table(is))
		}
	}()
	eventually(t, within, "there is no more of anything than before", func() string {
		now := look()
		if now == nil {
			time.Sleep(5 * time.Second)
			return "it could not be counted"
		}
		after = now
		var more []string
		for i := range now {
			for _, one := range grown(before[i], now[i]) {
				more = append(more, laptops[i].Name()+": "+one)
			}
		}
		if len(more) > 0 {
			time.Sleep(10 * time.Second)
		}
		return strings.Join(more, "\n\t")
	})
}
