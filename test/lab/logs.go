package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kith.dev/test/lab/pid1"
)

// LogNames are the logs a laptop has.
var LogNames = []string{"kithd", "k8s", "containerd", "init"}

// LogFile is where the machine finds a laptop's log; "init" is the lab's own first process of the laptop.
func (p *Laptop) LogFile(name string) (string, error) {
	if _, err := p.record(); err != nil {
		return "", err
	}
	switch name {
	case "", "kithd":
		return filepath.Join(p.disk, strings.TrimPrefix(pid1.DaemonLog, "/var/")), nil
	case "k8s":
		if isNode(p.name) { // which has no kithd
			return p.LogFile("kithd")
		}
		return filepath.Join(p.disk, "lib/kith/k8s/server.log"), nil
	case "containerd":
		return filepath.Join(p.disk, "lib/kith/k8s/containerd/containerd.log"), nil
	case "init":
		return filepath.Join(p.state, pid1.LogFile), nil
	}
	return "", fmt.Errorf("log %q: there are %s", name, strings.Join(LogNames, ", "))
}

// Logs copies a log to w; with follow it goes on until ctx ends.
func (p *Laptop) Logs(ctx context.Context, w io.Writer, name string, follow bool) error {
	path, err := p.LogFile(name)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s has no log %q yet (%s)", p.name, name, path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := io.Copy(w, f); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// lastLines is the end of the daemon's log, for error messages.
func (p *Laptop) lastLines() string {
	path, err := p.LogFile("kithd")
	if err != nil {
		return ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return tail(b, 2000)
}
