package daemon

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/metrics"
)

// settled is how long a part must have run for its last failure to be over.
const settled = 10 * time.Second

// parts remembers which parts of the daemon fail, for those who ask why something does not work.
type parts struct {
	metrics *metrics.Metrics

	mu     sync.Mutex
	failed map[string]error
}

func newParts(m *metrics.Metrics) *parts { return &parts{metrics: m, failed: map[string]error{}} }

// watched is run, with its failures remembered until it has run well for a while.
func (p *parts) watched(name string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		well := time.AfterFunc(settled, func() { p.set(name, nil) })
		err := run(ctx)
		well.Stop()
		if err != nil && ctx.Err() == nil {
			p.metrics.Failed(strings.TrimPrefix(name, "the "))
			p.set(name, err)
		}
		return err
	}
}

func (p *parts) set(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.failed, name)
		return
	}
	p.failed[name] = err
}

// problems tells of those that failed just now.
func (p *parts) problems() []api.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []api.Problem
	for _, name := range slices.Sorted(maps.Keys(p.failed)) {
		list = append(list, api.Problem{
			Severity: api.SeverityError, What: name + " failed; it is started again and again",
			Why: p.failed[name].Error(), Do: "the log has more: journalctl -u kithd -e",
		})
	}
	return list
}
