package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/peering"
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
	d.giver = giving.New(d.images, d.log)
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
	d.giver.Serve(w, r, giving.Peer{Name: peer, Pods: c.Fleet.PodsAt(peer), Begins: func(image string, size int64, pods []*corev1.Pod) {
		for _, pod := range pods {
			c.Fleet.Note(peer, pod, corev1.EventTypeNormal, "ImageFromHome", fmt.Sprintf("%s takes the image %s from here, %d MB", peer, image, (size+500_000)/1_000_000))
		}
		d.changed.Notify()
	}})
}

// homes asks the homes of guests for their images. Only the built-in engine asks.
func (d *Daemon) homes() *homes.Homes {
	if d.cfg.Engine != config.EngineBuiltin {
		return nil
	}
	return &homes.Homes{Path: filepath.Join(d.cfg.RunDir, "k8s", homes.Socket), Log: d.log, Client: func(consumer string) (*peering.Client, bool) {
		id, err := identity.ParseID(consumer)
		if err != nil {
			return nil, false
		}
		return d.contacts.Client(id)
	}, Rate: func(consumer string) (int64, bool) {
		if c := d.seen(); c != nil {
			return c.Host.Contracts.ImageRate(consumer)
		}
		return 0, false
	}}
}
