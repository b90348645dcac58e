package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"kith.dev/test/lab"
)

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
