package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/test/lab"
)

// discovery has laptops without Kubernetes: kithd is the same.
func discovery(ctx context.Context, r *rig) error {
	return errors.Join(comeAndGo(ctx, r), fifty(ctx, r))
}

// withLab runs something in a lab that is there only for it.
func withLab(ctx context.Context, o lab.Options, do func(*lab.Lab) error) error {
	l, err := lab.Up(ctx, o)
	if err == nil {
		err = do(l)
	}
	if l != nil {
		err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))
	}
	return err
}

func comeAndGo(ctx context.Context, r *rig) error {
	return withLab(ctx, lab.Options{Name: r.options.lab + "lan", Laptops: 2, NoEngine: true}, func(l *lab.Lab) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		alice := &node{Laptop: l.Laptop("alice")}
		alice.kith = client.New(alice.Path(lab.Socket))
		if _, err := until(ctx, "alice reaches bob", func() bool { return alice.peer(ctx, "bob").Reachable }); err != nil {
			return err
		}
		seen, err := events(ctx, alice.kith, false)
		if err != nil {
			return err
		}
		for range max(1, r.rounds/2) {
			if err := stopAndStart(ctx, r, l, alice, seen); err != nil {
				return err
			}
		}
		for range max(1, r.rounds/3) {
			if err := losePower(ctx, r, l, alice); err != nil {
				return err
			}
		}
		return nil
	})
}

func stopAndStart(ctx context.Context, r *rig, l *lab.Lab, alice *node, seen <-chan timed) error {
	bob := l.Laptop("bob")
	began := time.Now()
	if err := bob.StopDaemon(ctx); err != nil {
		return err
	}
	gone, err := happens(ctx, seen, began, api.EventPeerLost, "bob")
	if err != nil {
		return err
	}
	r.report.Took("neighbour: gone, after kithd is told to stop", gone.at.Sub(began))

	pause(ctx, 3*time.Second) // mDNS says nothing twice within a second
	began = time.Now()
	if err := bob.StartDaemon(ctx); err != nil {
		return err
	}
	there, err := happens(ctx, seen, began, api.EventPeerSeen, "bob")
	if err != nil {
		return err
	}
	r.report.Took("neighbour: seen, after its kithd is started", there.at.Sub(began))

	bobs := &node{Laptop: bob, kith: client.New(bob.Path(lab.Socket))}
	if _, err := until(ctx, "bob's kithd answers", func() bool { _, err := bobs.kith.Version(ctx); return err == nil }); err != nil {
		return err
	}
	own, err := events(ctx, bobs.kith, true)
	if err != nil {
		return err
	}
	knows, err := happens(ctx, own, began, api.EventPeerSeen, "alice")
	if err != nil {
		return err
	}
	r.report.Took("newcomer: sees who was there, after its start", knows.Time.Sub(began))
	_, err = until(ctx, "alice reaches bob", func() bool { return alice.peer(ctx, "bob").Reachable })
	return err
}

func losePower(ctx context.Context, r *rig, l *lab.Lab, alice *node) error {
	bob := l.Laptop("bob")
	began := time.Now()
	if err := bob.Kill(ctx); err != nil {
		return err
	}
	noticed, err := until(ctx, "alice finds bob unreachable", func() bool { return !alice.peer(ctx, "bob").Reachable })
	if err != nil {
		return err
	}
	r.report.Took("neighbour: unreachable, after a power loss", noticed.Sub(began))
	if err := bob.Boot(ctx); err != nil {
		return err
	}
	_, err = until(ctx, "alice reaches bob again", func() bool { return alice.peer(ctx, "bob").Reachable })
	return err
}

// fifty counts at each of many laptops whom it has seen.
func fifty(ctx context.Context, r *rig) error {
	many := r.stations
	for range max(1, r.rounds/5) {
		began := time.Now()
		err := withLab(ctx, lab.Options{Name: r.options.lab + "lan", Laptops: many, NoEngine: true}, func(l *lab.Lab) error {
			answered := time.Now()
			last := make([]time.Time, many)
			var all errgroup.Group
			for i, p := range l.Laptops() {
				all.Go(func() (err error) {
					last[i], err = seesAll(ctx, p, many-1)
					return err
				})
			}
			if err := all.Wait(); err != nil {
				return err
			}
			end := answered
			for _, t := range last {
				if t.After(end) {
					end = t
				}
			}
			r.report.Took(fmt.Sprintf("%d laptops: all see all, after the first began to boot", many), end.Sub(began))
			r.report.Took(fmt.Sprintf("%d laptops: all see all, after the last kithd answered", many), end.Sub(answered))
			return r.quiet(ctx, l.Laptops())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// quietFor is how long the crowd is looked at while nobody comes or goes.
const quietFor = 2 * time.Minute

// quiet counts what it costs each of many laptops that the others are there.
func (r *rig) quiet(ctx context.Context, all []*lab.Laptop) error {
	pause(ctx, time.Minute) // what the start has said is over
	before, err := inSight(ctx, all)
	if err != nil {
		return err
	}
	began := time.Now()
	pause(ctx, quietFor)
	now, err := inSight(ctx, all)
	if err != nil {
		return err
	}
	minutes := time.Since(began).Minutes()
	each := func(what, unit string, of func(station) float64, times float64) {
		var sum float64
		for i := range all {
			sum += of(now[i]) - of(before[i])
		}
		r.report.Add(fmt.Sprintf("%d laptops that know each other: %s, of each", len(all), what), unit, times*sum/float64(len(all)))
	}
	each("received in a minute", "kB", func(s station) float64 { return s.received / 1e3 }, 1/minutes)
	each("sent in a minute", "kB", func(s station) float64 { return s.sent / 1e3 }, 1/minutes)
	each("idle CPU of kithd", "% of a core", func(s station) float64 { return s.kithd.cpu }, 100/60./minutes)
	each("idle wake-ups of kithd", "a second", func(s station) float64 { return float64(s.kithd.switches) }, 1/60./minutes)
	var rss float64
	for _, s := range now {
		rss += s.kithd.rss
	}
	r.report.Add(fmt.Sprintf("%d laptops that know each other: memory of kithd, of each", len(all)), "MB", rss/float64(len(all)))
	return ctx.Err()
}

// station is one laptop of a crowd.
type station struct {
	received, sent float64 // bytes on its link so far
	kithd          process
}

func inSight(ctx context.Context, all []*lab.Laptop) ([]station, error) {
	list := make([]station, len(all))
	var work errgroup.Group
	work.SetLimit(8)
	for i, p := range all {
		work.Go(func() error {
			out, _, err := p.Exec(ctx, "cat", "/sys/class/net/eth0/statistics/rx_bytes", "/sys/class/net/eth0/statistics/tx_bytes")
			if err != nil {
				return err
			}
			if _, err := fmt.Sscan(out, &list[i].received, &list[i].sent); err != nil {
				return fmt.Errorf("%s: %q: %w", p.Name(), out, err)
			}
			running, err := processes(p)
			for _, one := range running {
				if one.name == "kithd" {
					list[i].kithd = one
				}
			}
			return err
		})
	}
	return list, work.Wait()
}

// seesAll tells when a laptop saw the last of n others.
func seesAll(ctx context.Context, p *lab.Laptop, n int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen, err := events(ctx, client.New(p.Path(lab.Socket)), true)
	if err != nil {
		return time.Time{}, err
	}
	whom := map[string]bool{}
	for e := range seen {
		if e.Type == api.EventPeerSeen {
			whom[e.Peer] = true
		}
		if len(whom) == n {
			return e.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s saw %d of %d within %s", p.Name(), len(whom), n, patience)
}
