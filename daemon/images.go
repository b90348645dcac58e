package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	giving "kith.dev/core/consume/images"
	"kith.dev/core/local/images"
	homes "kith.dev/core/provide/images"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/config"
)

// makeImages makes the store of this laptop's images.
func (d *Daemon) makeImages() error {
	dir := d.cfg.RuntimeDir
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program's folder: %w", err)
		}
		dir = filepath.Dir(self)
	}
	d.images = &images.Store{Program: filepath.Join(dir, images.Program), Socket: func() string {
		if d.engine == nil {
			return ""
		}
		return d.engine.Facts().Runtime
	}}
	d.giver = giving.New(d.images, d.me, d.log)
	d.makeHomes()
	return nil
}

// giveImages answers a peer whose guests are this cluster's pods.
func (d *Daemon) giveImages(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) {
	known, err := d.directory.Find(id)
	if err != nil || known.Peer == nil {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeForbidden, Message: "no pods of this cluster are there"})
		return
	}
	peer := known.Peer.Name
	d.giver.Serve(w, r, giving.Peer{Name: peer, ID: known.ID, Pods: c.Fleet.PodsAt(peer), Holder: d.holderBut(c, peer), Begins: func(image string, size int64, pods []*corev1.Pod) {
		for _, pod := range pods {
			c.Fleet.Note(peer, pod, corev1.EventTypeNormal, "ImageFromHome", fmt.Sprintf("%s takes the image %s from here, %d MB", peer, image, (size+500_000)/1_000_000))
		}
		d.changed.Notify()
	}})
}

// holderBut finds a peer other than one where pods of this cluster run from an image.
func (d *Daemon) holderBut(c *clusterPart, taker string) func(image string) (identity.ID, string, bool) {
	return func(image string) (identity.ID, string, bool) {
		for _, peer := range c.Client.Now().Peers {
			if peer.Name == taker || !d.directory.Contact(peer).Reachable() {
				continue
			}
			at, ok := giving.RunsFrom(c.Fleet.PodsAt(peer.Name), image)
			if id, err := identity.ParseID(peer.Spec.ID); ok && err == nil {
				return id, at, true
			}
		}
		return identity.ID{}, "", false
	}
}

// handsImage reports whether other peers of a consumer may have an image of its guests here from this laptop.
func (d *Daemon) handsImage(ctx context.Context, consumer, image string) bool {
	c := d.seen()
	if c == nil || !c.Host.Contracts.HandsImages(consumer) {
		return false
	}
	var guests corev1.PodList
	if err := c.Client.List(ctx, &guests, client.MatchingLabels{v1alpha1.LabelConsumer: consumer}, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	return slices.ContainsFunc(guests.Items, func(pod corev1.Pod) bool { return giving.Runs(&pod, image) })
}

// makeHomes makes what asks the homes of guests for their images. Only the built-in engine asks.
func (d *Daemon) makeHomes() {
	if d.cfg.Engine != config.EngineBuiltin {
		return
	}
	d.homes = &homes.Homes{Path: filepath.Join(d.cfg.RunDir, "k8s", homes.Socket), Log: d.log, Client: func(consumer string) (*peering.Client, bool) {
		id, err := identity.ParseID(consumer)
		if err != nil {
			return nil, false
		}
		return d.contacts.Client(id)
	}, Me: d.me.ID(), Giver: d.giver, Hands: d.handsImage, Rate: func(consumer string) (int64, bool) {
		if c := d.seen(); c != nil {
			return c.Host.Contracts.ImageRate(consumer)
		}
		return 0, false
	}}
}

// heldImage answers another peer of a home whose guests are here.
func (d *Daemon) heldImage(_ *clusterPart, w http.ResponseWriter, r *http.Request, id string) {
	taker, err := identity.ParseID(id)
	if err != nil || d.homes == nil {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "this cluster keeps no images of its guests' homes"})
		return
	}
	d.homes.Held(w, r, taker)
}
