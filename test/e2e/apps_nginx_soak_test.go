//go:build lab && soak

package e2e

import (
	"testing"
	"time"
)

// answers is what `load http` says in the end.
type answers struct {
	Requests, Errors                         int
	FirstError, LastError                    string
	PerSecond, P50ms, P99ms, Maxms, Outagems float64
}

// TestNoRequestFailsInARollingUpdate updates nginx while clients at home and at bob ask it: on one laptop, which is what a cluster
// alone does, and on both.
func TestNoRequestFailsInARollingUpdate(t *testing.T) {
	w := newAppsWorld(t)
	const lasts = 30 * time.Second
	for _, where := range []struct{ name, place string }{
		{"at home", "nodeSelector: {kubernetes.io/hostname: alice}"},
		{"on both", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: nginx}}}]"},
	} {
		for _, end := range []struct{ name, lifecycle string }{
			{"with a preStop of 3 s", "{preStop: {sleep: {seconds: 3}}}"},
			{"with none", "{}"},
		} {
			w.run(where.name+" "+end.name, func(t *testing.T) {
				w.app("nginx.yaml", "PLACE", where.place, "LIFECYCLE", end.lifecycle)
				kubectl(t, w.alice, "-n", "shop", "rollout", "status", "deployment/nginx", "--timeout=2m")
				eventually(t, time.Minute, "nginx is ready", func() string { return w.appReady("nginx", 4) })
				clients := map[string]string{"from-home": "alice", "from-bob": "kith-bob"}
				// With the dot, and no more of them, so that a guest that must connect anew for each stays within the limit of
				// its questions to DNS (docs/pods.md).
				for name, node := range clients {
					apply(t, w.alice, loading(name, node, "Never", "http", "-rate", "20", "-duration", lasts.String(), "http://nginx.shop.svc.cluster.local./"))
				}
				time.Sleep(5 * time.Second)
				kubectl(t, w.alice, "-n", "shop", "rollout", "restart", "deployment/nginx")
				kubectl(t, w.alice, "-n", "shop", "rollout", "status", "deployment/nginx", "--timeout=2m")
				for name := range clients {
					var r answers
					w.reported(name, 2*lasts, &r)
					if r.Requests < 300 || end.lifecycle != "{}" && r.Errors > 0 {
						t.Errorf("%s: %+v", name, r)
					}
				}
			})
		}
	}
}
