package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
	"kith.dev/daemon/metrics"
)

// keep runs a part of the daemon for as long as ctx lasts. That it fails is logged, counted and told to the owner.
func (d *Daemon) keep(ctx context.Context, name string, run func(context.Context) error) {
	supervise(ctx, d.log, name, d.parts.watched(name, run))
}

// settled is how long a part must have run for its last failure to be over.
const settled = 10 * time.Second

// parts remembers which parts of the daemon fail, for those who ask why something does not work.
type parts struct {
	metrics *metrics.Metrics
	changed func() // called when the result of problems has changed

	mu     sync.Mutex
	failed map[string]error
}

func newParts(m *metrics.Metrics, changed func()) *parts {
	return &parts{metrics: m, changed: changed, failed: map[string]error{}}
}

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
	_, failed := p.failed[name]
	if err == nil {
		delete(p.failed, name)
	} else {
		p.failed[name] = err
	}
	p.mu.Unlock()
	if failed || err != nil {
		p.changed()
	}
}

// problems lists the parts that fail now.
func (p *parts) problems() []api.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []api.Problem
	for _, name := range slices.Sorted(maps.Keys(p.failed)) {
		list = append(list, api.Problem{
			Severity: api.SeverityError, What: name + " failed; it is started again and again",
			Why: p.failed[name].Error(), Do: "the log has more: " + places.Here().ReadLog,
		})
	}
	return list
}

const (
	firstPause = 500 * time.Millisecond
	longest    = 30 * time.Second
)

// supervise runs something for as long as ctx lasts: when it fails it is run again, after a pause that grows
// with every failure in a row and has some jitter.
func supervise(ctx context.Context, log *slog.Logger, name string, run func(context.Context) error) {
	growing := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.25, Steps: 100, Cap: longest}
	delay := growing
	for {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longest {
			delay = growing
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		var final interface{ Final() bool }
		if errors.As(err, &final) && final.Final() { // what is not made for this system
			log.Warn(name+" is not there", "err", err)
			<-ctx.Done()
			return
		}
		pause := delay.Step()
		log.Warn(name+" failed, will be started again", "err", err, "in", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
