package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/test/lab/pid1"
)

// WaitReady waits until the laptop's own node is Ready, pods can be made in its default namespace, and kithd can peer. It asks the API
// server itself: starting a kubectl five times a second would slow down what it waits for. A laptop without an engine
// is ready when its kithd answers.
func (p *Laptop) WaitReady(ctx context.Context, progress func(laptop, what string)) error {
	if progress == nil {
		progress = func(string, string) {}
	}
	r, err := p.record()
	if err != nil {
		return err
	}
	last := errors.New("nothing happened yet")
	for shown := ""; ; {
		if _, err := p.running(); err != nil {
			return err
		}
		if err := p.ready(ctx, r); err == nil {
			progress(p.name, "ready")
			return nil
		} else if ctx.Err() == nil {
			last = err
		}
		if s := last.Error(); s != shown {
			shown = s
			progress(p.name, s)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; the end of its log:\n%s\nmore: kith-lab logs %s", p.name, last, p.lastLines(), p.name)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Socket is kithd's local API inside a laptop.
const Socket = "/run/kith/kith.sock"

// settled is how long a daemon that is not kithd must have run to count as running.
const settled = 300 * time.Millisecond

func (p *Laptop) ready(ctx context.Context, r record) error {
	s, err := p.status()
	if err != nil {
		return err
	}
	switch {
	case s.Daemon != pid1.DaemonRunning && s.LastExit != "":
		return fmt.Errorf("kithd is %s (it ended with %s)", s.Daemon, s.LastExit)
	case s.Daemon != pid1.DaemonRunning:
		return fmt.Errorf("kithd is %s", s.Daemon)
	case filepath.Base(r.Daemon[0]) != "kithd":
		if time.Since(s.Started) < settled {
			return errors.New("the daemon was just started")
		}
	default:
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", p.Path(Socket))
		if err != nil {
			return errors.New("kithd does not answer on its socket yet")
		}
		c.Close()
	}
	if !r.Engine {
		return nil
	}
	if err := p.nodeReady(ctx, s.Up); err != nil || filepath.Base(r.Daemon[0]) != "kithd" {
		return err
	}
	return p.kithReady(ctx)
}

// kithReady says whether kithd's own controllers run, without which it cannot peer.
func (p *Laptop) kithReady(ctx context.Context) error {
	c := client.New(p.Path(Socket))
	defer c.Close()
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if status.Engine.State != api.EngineReady && status.Engine.State != api.EngineAsleep {
		return errors.New(status.Engine.Why)
	}
	return nil
}

// nodeReady says whether the node was reported Ready since the laptop was booted: until then the API server still has
// what was true before.
func (p *Laptop) nodeReady(ctx context.Context, up time.Time) error {
	at := p
	if isNode(p.name) {
		at = p.lab.serverOf(p.name)
	}
	api, err := at.api()
	if err != nil {
		return err
	}
	defer api.client.CloseIdleConnections()
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			}
		}
	}
	if err := api.get(ctx, "the node", "/api/v1/nodes/"+p.name, &node); err != nil {
		return err
	}
	why := "no condition Ready yet"
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" {
			if c.LastHeartbeatTime.Before(up.Truncate(time.Second)) {
				why = "the kubelet has not reported since the laptop was booted"
			} else if why = c.Message; c.Status == "True" {
				// Without it the API server refuses pods, for some seconds after the node is Ready.
				return api.get(ctx, "the default ServiceAccount", "/api/v1/namespaces/default/serviceaccounts/default", &struct{}{})
			}
		}
	}
	return fmt.Errorf("node not Ready: %s", why)
}

// kubeAPI is as much of a Kubernetes client as waiting needs.
type kubeAPI struct {
	server string
	client *http.Client
}

func (p *Laptop) api() (*kubeAPI, error) {
	file, err := os.ReadFile(filepath.Join(p.disk, strings.TrimPrefix(Kubeconfig, "/var/")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the engine has written no kubeconfig yet")
	}
	if err != nil {
		return nil, err
	}
	var c struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(file, &c); err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if len(c.Clusters) == 0 || len(c.Users) == 0 {
		return nil, errors.New("read kubeconfig: it names no cluster or no user")
	}
	cert, err := tls.X509KeyPair(c.Users[0].User.Cert, c.Users[0].User.Key)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Clusters[0].Cluster.CA)
	return &kubeAPI{server: c.Clusters[0].Cluster.Server, client: &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DialContext:     p.Dial,
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
		},
	}}, nil
}

func (k *kubeAPI) get(ctx context.Context, what, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.server+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return errors.New("the API server does not listen yet")
	case os.IsTimeout(err):
		return errors.New("the API server is slow to answer")
	case err != nil:
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("%s is not there yet", what)
	default:
		return fmt.Errorf("the API server answers for %s: %s", what, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(into)
}
