package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// order is what is to be pulled; the same as kith.dev/engine/images.order.
type order struct {
	Socket     string   `json:"socket"` // containerd's
	Root       string   `json:"root"`   // the folder of containerd's data, on whose disk some room must stay
	Image      string   `json:"image"`
	Registries []string `json:"registries"` // registries that are open whatever their address; "*" is the internet
	Home       string   `json:"home"`       // the unix socket at which the guest's home is asked first, and the path there: /SOCKET:/PATH; "" for none
	Auth       auth     `json:"auth"`

	broken *atomic.Bool // an answer of home's did not come to its end: another attempt may be worth it; nil without a home
}

// auth are the credentials of the pod's imagePullSecrets for this image, as the CRI has them.
type auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identityToken"`
}

// pull has containerd get an image, and gives its name with its digest.
func pull(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order
	if err := read(in, &o); err != nil {
		return err
	}
	name, err := o.pull(ctx)
	if err == nil {
		_, err = fmt.Fprintln(out, name)
	}
	return err
}

func (o order) pull(ctx context.Context) (string, error) {
	o.broken = &atomic.Bool{}
	named, err := reference.ParseDockerRef(o.Image)
	if err != nil {
		return "", fmt.Errorf("image %q: %w", o.Image, err)
	}
	resolver, target, err := o.resolve(ctx, named)
	if err != nil {
		return "", err
	}
	if err := small(target); err != nil {
		return "", err
	}
	exact, err := kept(named, target)
	if err != nil {
		return "", err
	}
	client, err := dial(o.Socket)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := roomy(ctx, o.Root)
	defer cancel()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	// What came is kept under it, also when this ends without the image: the next attempt, of this program or of the kubelet, goes on there.
	keep := client.LeasesService()
	lease, err := keep.Create(ctx, leases.WithRandomID(), leases.WithExpiration(keptFor))
	if err != nil {
		return "", fmt.Errorf("containerd: %w", err)
	}
	leased := leases.WithLease(ctx, lease.ID)
	for pause := leastPause; ; pause *= 2 {
		o.broken.Store(false)
		_, err = client.Pull(leased, exact.String(), containerd.WithResolver(resolver), containerd.WithPullUnpack, containerd.WithPullSnapshotter("overlayfs"),
			containerd.WithMaxConcurrentDownloads(3), containerd.WithImageHandlerWrapper(bounded()))
		// A laptop's connection breaks more often than a registry's.
		if err == nil || o.Home == "" || !o.broken.Load() || pause > mostPause || !waited(ctx, pause) {
			break
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// What came of an image that is not what it says, or has no room, is not kept.
	if err == nil || !o.broken.Load() || errors.Is(err, errFull) {
		_ = keep.Delete(context.WithoutCancel(ctx), lease, leases.SynchronousDelete) // else it ends by itself
	}
	return exact.String(), err
}

// waited waits, and reports whether there is reason to go on.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// keptFor is how long a part of an image waits for the rest: longer than a pull may take.
const keptFor = time.Hour

// Pauses between two attempts to go on with an image from home: half a minute for all of them, then the kubelet tries again.
const (
	leastPause = 250 * time.Millisecond
	mostPause  = 16 * time.Second
)

// resolve finds what a name means, at home or else at the registry, and from where that is to be had.
func (o order) resolve(ctx context.Context, named reference.Named) (remotes.Resolver, ocispec.Descriptor, error) {
	domain := reference.Domain(named)
	if o.Home != "" {
		if _, target, err := docker.NewResolver(docker.ResolverOptions{Hosts: func(string) ([]docker.RegistryHost, error) { return o.home(), nil }}).Resolve(ctx, named.String()); err == nil {
			return o.resolver(domain), target, nil
		}
		o.Home = "" // it does not have it, or does not answer: the registry says why not
	}
	r := o.resolver(domain)
	_, target, err := r.Resolve(ctx, named.String())
	return r, target, err
}

// kept is the name under which an image is kept, its digest alone: a guest must not make a name of the owner's mean another image.
func kept(named reference.Named, image ocispec.Descriptor) (reference.Canonical, error) {
	return reference.WithDigest(reference.TrimNamed(named), image.Digest)
}

func (o order) resolver(domain string) remotes.Resolver {
	transport := docker.DefaultHTTPTransport(nil)
	transport.Proxy = nil // it would resolve names itself, and reach what it likes
	transport.DialContext = newGuard(domain, o.Registries).dial
	client := &http.Client{Transport: steady{transport, quiet, new(atomic.Bool)}}
	tokens := &http.Client{Transport: brief{transport}}
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(tokens), docker.WithAuthCreds(func(string) (string, string, error) { return o.Auth.parse() }))
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		hosts := o.home()
		scheme := "https"
		for _, r := range o.Registries {
			if r == "http://"+host {
				scheme = "http"
			}
		}
		at, err := docker.DefaultHost(host)
		return append(hosts, docker.RegistryHost{
			Client: client, Authorizer: authorizer, Host: at, Scheme: scheme, Path: "/v2",
			Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
		}), err
	}})
}

// home is asked before any registry: what it has under a name is what the guest means by it, and no credentials go there.
func (o order) home() []docker.RegistryHost {
	socket, path, found := strings.Cut(o.Home, ":")
	if !found {
		return nil
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return []docker.RegistryHost{{
		Client: &http.Client{Transport: steady{transport, quiet, o.broken}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Host:   "home", Scheme: "http", Path: path, Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
	}}
}

// brief reads so much of an answer and no more: what a token service says is decoded as one whole, whatever its length.
type brief struct{ http.RoundTripper }

const mostToken = 1 << 20

func (b brief) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, mostToken)
	}
	return resp, err
}

// parse gives user and password; an empty user with an identity token.
func (a auth) parse() (user, secret string, err error) {
	switch {
	case a.IdentityToken != "":
		return "", a.IdentityToken, nil
	case a.Username != "":
		return a.Username, a.Password, nil
	case a.Auth == "":
		return "", "", nil
	}
	text, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		return "", "", fmt.Errorf("credentials of the image: %w", err)
	}
	user, secret, ok := strings.Cut(string(text), ":")
	if !ok {
		return "", "", fmt.Errorf("credentials of the image: want user:password in base64")
	}
	return user, strings.Trim(secret, "\x00"), nil
}

// mostDescription bounds manifests, indexes and configurations, which are read whole; registries hold to 4 MiB (OCI
// distribution specification 1.1).
const mostDescription = 4 << 20

// mostLayer bounds what one layer says it has, which is as much as containerd takes of it: the largest there are have some ten GiB. Of one that says
// nothing (0) containerd would take whatever comes, for ever (core/content.Copy of v2.3).
const mostLayer = 32 << 30

// small refuses what is larger than its kind is.
func small(d ocispec.Descriptor) error {
	described := images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType) || images.IsConfigType(d.MediaType)
	if (described || !images.IsLayerType(d.MediaType)) && d.Size > mostDescription {
		return fmt.Errorf("%s %s has %d bytes, want at most %d", d.MediaType, d.Digest, d.Size, mostDescription)
	}
	if d.Size < 1 || d.Size > mostLayer {
		return fmt.Errorf("%s %s has %d bytes, want 1 to %d", d.MediaType, d.Digest, d.Size, int64(mostLayer))
	}
	return nil
}

// mostOfOne bounds the manifests, configurations and layers of one image: what runs has some tens of each, and the kernel mounts 500 layers at most.
const mostOfOne = 1000

// bounded stands before all that is done with a part of an image: one that is too large is not begun, and each comes from the registry. The
// addresses that a description may name for a layer containerd asks with a client of its own (core/remotes/docker of v2.3), past the guard.
func bounded() func(images.Handler) images.Handler {
	var parts atomic.Int64
	return func(next images.Handler) images.Handler {
		return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			if err := small(d); err != nil {
				return nil, err
			}
			d.URLs = nil
			children, err := next.Handle(ctx, d)
			if parts.Add(int64(len(children))) > mostOfOne {
				return nil, fmt.Errorf("the image has more than %d parts", mostOfOne)
			}
			return children, err
		})
	}
}
