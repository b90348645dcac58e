//go:build lab && soak

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestAServerClusterWithoutItsAPIServer: while no node reaches the API server, for longer than the lease lasts, packets go on and the same kithd works
// afterwards; when it is away for that kithd's node alone, the other takes over and the former stops.
func TestAServerClusterWithoutItsAPIServer(t *testing.T) {
	w := newThreeNodes(t)
	w.meet("at first", w.names...)
	apply(t, w.at, strings.Replace(loading("serve", "kith-alice", "Always", "serve"), "namespace: shop", "namespace: store", 1))
	there := waitReady(t, w.at, 1, "-n", "store", "-l", "app=serve")[0].Status.PodIP + ":7000"
	pod, gateway := w.leader(t)

	r := w.streams("out", there, 75*time.Second, func() {
		w.unreachable("-I", w.names...)
		time.Sleep(30 * time.Second)
		w.unreachable("-D", w.names...)
	})
	t.Logf("with no API server for 30 s: %.0f s of stream, longest gap %.0f ms at %.1f s", r.Seconds, r.Gap, r.GapAt)
	if r.Broken != "" || r.Gap > 3000 {
		t.Errorf("without the API server packets stopped: %+v", r)
	}
	if now, _ := w.leader(t); now != pod {
		t.Errorf("%s works, and before the API server was away %s did", now, pod)
	}
	kubectl(t, w.at, "wait", "--for=condition=Ready", "node/kith-alice", "--timeout=3m")
	kubectl(t, w.at, "-n", "store", "delete", "pod", "-l", "app=web") // a new one goes to alice
	waitReady(t, w.at, 1, "-n", "store", "-l", "app=web")
	w.meet("when the API server is back", w.names...)
	w.doctor("when the API server is back")

	r = w.streams("away", there, 90*time.Second, func() {
		w.unreachable("-I", gateway)
		eventually(t, time.Minute, "another kithd works", func() string {
			if now, _ := w.leader(t); now == pod {
				return instead(now)
			}
			return ""
		})
		time.Sleep(15 * time.Second)
		w.unreachable("-D", gateway)
	})
	t.Logf("with no API server for the gateway's node alone: longest gap %.0f ms at %.1f s", r.Gap, r.GapAt)
	if r.Broken != "" || r.Gap > 30000 {
		t.Errorf("when another kithd took over: %+v", r)
	}
	w.meet("when another kithd took over", w.names...)
	w.doctor("when another kithd took over")
}

// unreachable adds or deletes a rule on the API server's node: no packet from these reaches it.
func (w *threeNodes) unreachable(do string, names ...string) {
	w.t.Helper()
	for _, n := range names {
		if n == w.at.Name() {
			continue
		}
		from, err := w.node(n).Address()
		if err != nil {
			w.t.Fatal(err)
		}
		if _, stderr, err := w.at.Exec(w.t.Context(), "iptables", do, "INPUT", "-s", from.String(), "-p", "tcp", "--dport", "6443", "-j", "DROP"); err != nil {
			w.t.Fatal(err, stderr)
		}
	}
}

// streams has a pod on the API server's node, whose kubelet is not cut off, stream to a pod at alice while do is done.
func (w *threeNodes) streams(name, to string, long time.Duration, do func()) (r report) {
	w.t.Helper()
	node := w.at.Name()
	apply(w.t, w.at, strings.NewReplacer("namespace: shop", "namespace: store", "nodeSelector: {kubernetes.io/hostname: "+node+"}", "nodeName: "+node).
		Replace(loading(name, node, "Never", "stream", "-duration", long.String(), to)))
	waitReady(w.t, w.at, 1, "-n", "store", "-l", "app="+name)
	do()
	eventually(w.t, 2*time.Minute, "the stream ends", func() string {
		out, err := w.at.Kubectl(w.t.Context(), "-n", "store", "logs", name)
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return r
}
