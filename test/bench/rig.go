package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/test/bench/report"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// rig is the lab of two laptops that most groups share; it comes up when one needs it.
type rig struct {
	options
	report     *report.Report
	lab        *lab.Lab
	alice, bob *node
	many       int // pods that the contract has to cover when those of the options do not
}

// room is how many pods alice asks for.
func (r *rig) room() int { return max(r.pods, r.many) + 10 }

// node is a laptop with clients for its kithd and its cluster.
type node struct {
	*lab.Laptop
	kith   *client.Client
	config *rest.Config
	kube   kubernetes.Interface
}

const (
	namespace = "bench"
	abroad    = "kith-bob" // alice's node that stands for bob
)

// laptops gives the two laptops, and makes them the first time.
func (r *rig) laptops(ctx context.Context) error {
	if r.lab != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archives, err := images.Build(ctx, dir)
	if err != nil {
		return err
	}
	began := time.Now()
	o := lab.Options{Name: r.options.lab, Laptops: 2, Images: archives}
	if r.profiles != "" {
		o.Config = map[string]any{"profiling": true}
	}
	r.lab, err = lab.Up(ctx, o)
	if err != nil {
		return err
	}
	r.report.Took("two laptops: up, until both nodes are Ready", time.Since(began))
	if r.alice, err = connect(r.lab.Laptop("alice")); err != nil {
		return err
	}
	r.bob, err = connect(r.lab.Laptop("bob"))
	return err
}

func (r *rig) down() {
	if r.lab == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.lab.Down(ctx); err != nil {
		log.Printf("take the lab down: %v", err)
	}
	r.lab = nil
}

// connect makes the clients. They are for one boot: the laptop's files are found by way of its first process.
func connect(p *lab.Laptop) (*node, error) {
	n := &node{Laptop: p, kith: client.New(p.Path(lab.Socket))}
	file, err := os.ReadFile(p.Path(lab.Kubeconfig))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS, config.Burst = p.Dial, 200, 200
	n.config = config
	n.kube, err = kubernetes.NewForConfig(config)
	return n, err
}

// peer is another laptop as this one's kithd knows it; the zero value when it does not, or when kithd is starting.
func (n *node) peer(ctx context.Context, name string) api.Peer {
	p, err := n.kith.Peer(ctx, name)
	if err != nil {
		return api.Peer{}
	}
	return p
}

// timed is an event and when it was seen here.
type timed struct {
	api.Event
	at time.Time
}

// events gives what happens at a laptop from now on, or, from the beginning, also what happened since kithd started.
func events(ctx context.Context, kith *client.Client, beginning bool) (<-chan timed, error) {
	var since uint64
	if !beginning {
		for e, err := range kith.Events(ctx, client.EventsFrom{}) {
			if err != nil {
				return nil, err
			}
			since = e.Seq
		}
	}
	seen := make(chan timed, 256)
	go func() {
		defer close(seen)
		for e, err := range kith.Events(ctx, client.EventsFrom{Since: since, Follow: true}) {
			if err != nil {
				return
			}
			select {
			case seen <- timed{e, time.Now()}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return seen, nil
}

// patience is how long one thing may take before the group gives up on it: far more than any of them should.
const patience = time.Minute

// happens waits for an event about a peer that is not older than after: one machine, one clock.
func happens(ctx context.Context, seen <-chan timed, after time.Time, kind api.EventType, peer string) (timed, error) {
	late := time.After(patience)
	for {
		select {
		case e, open := <-seen:
			if !open {
				return timed{}, fmt.Errorf("kithd went away while %s of %s was awaited", kind, peer)
			}
			if e.Type == kind && e.Peer == peer && !e.Time.Before(after) {
				return e, nil
			}
		case <-late:
			return timed{}, fmt.Errorf("no event %s of %s within %s", kind, peer, patience)
		case <-ctx.Done():
			return timed{}, ctx.Err()
		}
	}
}

// until asks every 10 ms, for what there is no stream of: a call to a local socket costs a fraction of that.
func until(ctx context.Context, what string, is func() bool) (time.Time, error) {
	return untilWithin(ctx, patience, what, is)
}

// untilWithin is until for what may take longer than one thing.
func untilWithin(ctx context.Context, most time.Duration, what string, is func() bool) (time.Time, error) {
	for late := time.Now().Add(most); ; {
		if is() {
			return time.Now(), nil
		}
		if time.Now().After(late) {
			return time.Time{}, fmt.Errorf("%s: not within %s", what, most)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, errors.Join(errors.New(what), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// up makes labs of two laptops from nothing; the last one stays for the other groups.
func up(ctx context.Context, r *rig) error {
	for range max(1, r.rounds/5) - 1 {
		began := time.Now()
		l, err := lab.Up(ctx, lab.Options{Name: r.options.lab + "up", Laptops: 2})
		if err == nil {
			r.report.Took("two laptops: up, until both nodes are Ready", time.Since(began))
		}
		if l != nil {
			began = time.Now()
			err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))
			r.report.Took("two laptops: down", time.Since(began))
		}
		if err != nil {
			return err
		}
	}
	return r.laptops(ctx)
}

// profile fetches one of Go's profiles of both kithd ("heap", "profile?seconds=20") into the directory that -profiles names,
// and returns when they are there. Without the flag it does nothing.
func (r *rig) profile(ctx context.Context, when, what string) {
	if r.profiles == "" {
		return
	}
	if err := os.MkdirAll(r.profiles, 0o755); err != nil {
		log.Print(err)
	}
	var all sync.WaitGroup
	for _, n := range []*node{r.alice, r.bob} {
		all.Go(func() {
			kind, _, _ := strings.Cut(what, "?")
			file := filepath.Join(r.profiles, fmt.Sprintf("%s-%s-%s", when, n.Name(), kind))
			if err := n.fetch(ctx, "/debug/pprof/"+what, file); err != nil {
				log.Printf("profile of kithd at %s: %v", n.Name(), err)
			}
		})
	}
	all.Wait()
}

// counters keeps what both API servers count, requests among it, for the same directory.
func (r *rig) counters(ctx context.Context, when string) {
	if r.profiles == "" {
		return
	}
	if err := os.MkdirAll(r.profiles, 0o755); err != nil {
		log.Print(err)
	}
	for _, n := range []*node{r.alice, r.bob} {
		text, err := n.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.profiles, fmt.Sprintf("%s-%s-metrics", when, n.Name())), text, 0o644)
		}
		if err != nil {
			log.Printf("metrics of the API server at %s: %v", n.Name(), err)
		}
	}
}

func (n *node) fetch(ctx context.Context, path, file string) error {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.Path(lab.Socket))
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kithd"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	return err
}
