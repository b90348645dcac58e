package daemon

import (
	"cmp"
	"context"
	"net/http"
	"net/http/pprof"
	"strings"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/kubelet"
	"kith.dev/core/local/frontdoor"
	"kith.dev/core/mode/company"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/trust/audit"
	"kith.dev/daemon/backend"
	"kith.dev/daemon/localapi"
	"kith.dev/daemon/metrics"
	"kith.dev/daemon/web"
)

// newMetrics makes the metrics, and opens their address if there is to be one.
func (d *Daemon) newMetrics() (err error) {
	d.metrics = metrics.New(d.backend.Facts, ctrlmetrics.Registry, map[audit.Door][]audit.Reason{
		audit.PeerAPI: {peering.RefusedRate, peering.RefusedAddress, peering.RefusedRoom, peering.RefusedHandshake},
		audit.Kube:    door.RefusedReasons(),
		audit.Company: company.RefusedReasons(),
		audit.Kubelet: {kubelet.RefusedHandshake, kubelet.RefusedNobody, kubelet.RefusedUser},
		audit.Socket:  {localapi.RefusedUser},
		audit.Front:   frontdoor.RefusedReasons(),
		audit.Page:    web.RefusedReasons(),
	}, d.log)
	d.backend.Metrics = d.metrics.Write
	d.parts = newParts(d.metrics, d.changed.Notify)
	d.local.Handle("GET /metrics", d.metrics.Handler())
	if d.cfg.MetricsAddress != "" {
		d.metricsAt, err = metrics.Listen(d.cfg.MetricsAddress, d.cfg.MetricsPublic)
	}
	return err
}

// newAudit makes the record of refusals.
func (d *Daemon) newAudit() *audit.Log {
	return audit.New(d.log, audit.Options{
		Named: func(id string) string {
			if d.directory == nil {
				return ""
			}
			return d.directory.PeerName(id)
		},
		Count: func(door audit.Door, reason audit.Reason) { d.metrics.Refused(door, reason) },
		Tell: func(peer, id, message string) {
			who := cmp.Or(peer, "a stranger, "+id)
			d.publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: peer, Message: who + " was " + message})
		},
	})
}

// countAnswers counts the requests that are answered, by whomever.
func (d *Daemon) countAnswers(ctx context.Context, mgr manager.Manager) error {
	answer := func(obj any) v1alpha1.Answer {
		r, ok := obj.(*v1alpha1.PeeringRequest)
		if !ok || r.Status.Answer == v1alpha1.AnswerPending {
			return ""
		}
		return r.Status.Answer
	}
	return backend.Watch(ctx, mgr, toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, first bool) {
			if a := answer(obj); a != "" && !first {
				d.metrics.RequestAnswered(strings.ToLower(string(a)))
			}
		},
		UpdateFunc: func(was, is any) {
			if a := answer(is); a != "" && answer(was) == "" {
				d.metrics.RequestAnswered(strings.ToLower(string(a)))
			}
		},
	}, &v1alpha1.PeeringRequest{})
}

// profile lets root look into the process, as docs/performance.md does. Profiles tell what is in memory, keys too.
func (d *Daemon) profile() {
	for path, handler := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "cmdline": pprof.Cmdline, "symbol": pprof.Symbol} {
		d.local.HandleRoot("GET /debug/pprof/"+path, handler)
	}
}
