package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/cluster"
	"kith.dev/core/local/frontdoor"
	"kith.dev/core/mode"
	"kith.dev/core/mode/company"
)

// makeMode makes what knows whether this laptop decides for itself, and leads the front door accordingly.
func (d *Daemon) makeMode() (err error) {
	cfg := mode.Config{
		Path: filepath.Join(d.cfg.DataDir, "mode.json"), ID: d.me.ID().String(), Home: d.home, Company: d.toCompany, Cluster: d.modeCluster,
		Directory: d.directory, Changed: d.moved.Wait, Patience: d.cfg.AutoUntetherAfter, Announce: d.publish, Notify: d.changed.Notify, Log: d.log,
	}
	if d.engine != nil {
		cfg.Engine, cfg.Ours = d.engine, d.engine.Facts().Switchable
	}
	if d.front != nil {
		cfg.Door = d.front
	}
	if d.mode, err = mode.New(cfg); err == nil && d.engine != nil {
		d.backend.Mode = d.mode
	}
	return err
}

// modeCluster is what a switch of the mode needs of the cluster; nil while there is none.
func (d *Daemon) modeCluster() *mode.Cluster {
	c := d.cluster.Load()
	if c == nil {
		return nil
	}
	return &mode.Cluster{Client: c.Client, Fresh: c.Fresh, SetBinding: c.Host.SetBinding}
}

// peersMoved has all who act upon contacts, Peers and contracts look again.
func (d *Daemon) peersMoved() {
	d.moved.Notify()
	d.changed.Notify()
}

// toCompany is the API server of a company as a destination of the front door, through its peer API.
func (d *Daemon) toCompany(peer *v1alpha1.Peer) (frontdoor.Destination, error) {
	to, err := d.directory.Client(peer)
	if err != nil {
		return frontdoor.Destination{}, err
	}
	base, err := url.Parse(to.BaseURL() + strings.TrimSuffix(company.Path, "/"))
	if err != nil {
		return frontdoor.Destination{}, err
	}
	upgrades := &http.Transport{
		DialTLSContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return to.DialTLS(ctx) },
		IdleConnTimeout: time.Minute,
		Protocols:       new(http.Protocols),
	}
	upgrades.Protocols.SetHTTP1(true)
	return frontdoor.Destination{
		Name: "the Kubernetes of " + peer.Name, Base: base, Transport: shared{to.Transport()}, Upgrades: upgrades, As: asLaptop,
	}, nil
}

// shared is a transport whose connections others use too: it has no CloseIdleConnections.
type shared struct{ http.RoundTripper }

// asLaptop has who comes in be the one user that the company knows this laptop by. Who it is here is for the company's audit log.
func asLaptop(who frontdoor.User, asked http.Header) (http.Header, error) {
	if asked != nil {
		return nil, errors.New("kubectl --as is not passed on while this laptop is tethered")
	}
	return http.Header{company.UserHeader: {who.Name}}, nil
}

// errStarting is why the front door does not lead home yet.
var errStarting = errors.New("the Kubernetes of this laptop is starting")

// home is the local cluster as a destination of the front door. Before it is ready, one that starts for the first time has no certificates.
func (d *Daemon) home() (frontdoor.Destination, error) {
	if d.engine.State().Phase != cluster.Ready {
		return frontdoor.Destination{}, errStarting
	}
	config := rest.CopyConfig(d.engine.RESTConfig())
	config.Wrap(cluster.Waking(d.engine))
	config.Wrap(cluster.Counted(&d.uses))
	as := asOwner
	if !d.engine.Facts().Ours {
		as = asAsked
	}
	return frontdoor.To("the Kubernetes of this laptop", config, as)
}
