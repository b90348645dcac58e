package backend

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/daemon/backend/location"
)

// Mode is who decides what this laptop runs, and the switch of it. *mode.Machine is one.
type Mode interface {
	Status() (api.Mode, *api.Tether)
	Check(ctx context.Context, peer *v1alpha1.Peer) (api.TetherCheck, error)
	Tether(ctx context.Context, peer *v1alpha1.Peer, options api.TetherOptions, report func(api.Progress)) error
	Untether(ctx context.Context, options api.UntetherOptions, report func(api.Progress)) error
}

// mode is the mode, and how far a tether is; nil while there is none.
func (b *Backend) mode() (api.Mode, *api.Tether) {
	if b.Mode == nil {
		return api.Autonomous, nil
	}
	mode, tether := b.Mode.Status()
	if mode == api.Autonomous {
		return mode, nil
	}
	if tether == nil {
		tether = &api.Tether{}
	}
	return mode, tether
}

// tetherOf shows how a tether with a peer stands; nil without one.
func tetherOf(s *v1alpha1.TetherStatus) *api.PeerTether {
	if s == nil || s.Role == "" || s.Step == "" {
		return nil
	}
	t := &api.PeerTether{Role: api.TetherRole(s.Role), Step: s.Step, Why: s.Why}
	if s.Since != nil {
		t.Since = s.Since.Time
	}
	return t
}

// autonomous is an error while a company's cluster decides what this laptop uses of others, and they of it; not says what is not done.
func (b *Backend) autonomous(not string) error {
	mode, tether := b.mode()
	var why string
	switch mode {
	case api.Autonomous:
		return nil
	case api.Tethered:
		why = "this laptop is tethered to " + tether.Peer + ", whose cluster decides what it uses and what it gives"
	case api.Untethering:
		return &api.Error{Code: api.CodeConflict, Message: not, Reason: "this laptop is being taken back from " + tether.Peer, Do: "try again when `kith status` says Autonomous"}
	default:
		why = "this laptop is being tethered to " + tether.Peer
	}
	return &api.Error{Code: api.CodeConflict, Message: not, Reason: why, Do: "`kith untether` takes it back first"}
}

// notTheCompany is an error if the peer is the one to which this laptop is tethered: that ends in another way.
func (b *Backend) notTheCompany(peer string) error {
	mode, tether := b.mode()
	if mode == api.Autonomous || tether.Peer != peer {
		return nil
	}
	return &api.Error{Code: api.CodeConflict, Message: "the peering with " + peer + " was not ended", Reason: "this laptop is tethered to it", Do: "`kith untether` takes the laptop back and ends what there is with " + peer}
}

// switcher is the mode, where it can be switched.
func (b *Backend) switcher() (Mode, error) {
	if b.Mode == nil {
		return nil, &api.Error{Code: api.CodeUnsupported, Message: "this laptop cannot be tethered", Reason: "its kithd runs without a Kubernetes (engine: none)", Do: "set engine to builtin and restart kithd"}
	}
	return b.Mode, nil
}

// CheckTether says what a tether to a peer would mean, and what is in the way of it.
func (b *Backend) CheckTether(ctx context.Context, ref string, dry api.DryRun) (api.TetherCheck, error) {
	mode, err := b.switcher()
	if err != nil {
		return api.TetherCheck{}, err
	}
	look := func() (directory.Known, error) { return b.findOrAdd(ctx, ref, func(api.Progress) {}) }
	if dry {
		look = func() (directory.Known, error) { return b.Directory.Find(ref) }
	}
	k, err := look()
	if err != nil {
		return api.TetherCheck{}, err
	}
	peer := k.Peer
	if peer == nil { // nothing is kept of somebody who was only looked at
		peer = &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: k.Name}, Spec: v1alpha1.PeerSpec{ID: k.ID.String(), DisplayName: k.Name, Endpoints: k.Addresses}}
	}
	check, err := mode.Check(ctx, peer.DeepCopy())
	if err != nil {
		return api.TetherCheck{}, switchError("what a tether to "+k.Name+" would mean is not known", err)
	}
	check.Peer = k.Name
	return check, nil
}

// Tether has a peer's cluster run this laptop.
func (b *Backend) Tether(ctx context.Context, o api.TetherOptions, report func(api.Progress)) (api.Status, error) {
	mode, err := b.switcher()
	if err == nil {
		err = checkID(o.ID)
	}
	if err != nil {
		return api.Status{}, err
	}
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Status{}, err
	}
	k, err := b.findOrAdd(ctx, o.Peer, report)
	if err == nil {
		err = sameID(k, o.ID)
	}
	if err != nil {
		return api.Status{}, err
	}
	if o.Code != "" || o.ID != "" {
		if err := c.confirmTether(ctx, k, o); err != nil {
			return api.Status{}, err
		}
	}
	peer := k.Peer
	if peer == nil {
		if len(k.Addresses) == 0 {
			return api.Status{}, location.Unreachable(k.Name, errors.New(k.Contact.Why))
		}
		if peer, err = record.EnsurePeer(ctx, c.Client, k.ID, k.Name, k.Addresses[:min(1, len(k.Addresses))], v1alpha1.Source(k.Source)); err != nil {
			return api.Status{}, internal(err)
		}
		b.Directory.Remember(peer)
	}
	o.Peer = peer.Name
	if err := mode.Tether(ctx, peer.DeepCopy(), o, c.unanswered(ctx, peer.Name, report)); err != nil {
		return api.Status{}, switchError("this laptop was not tethered to "+peer.Name, err)
	}
	return b.Status(ctx)
}

// Untether takes this laptop back.
func (b *Backend) Untether(ctx context.Context, o api.UntetherOptions, report func(api.Progress)) (api.Status, error) {
	mode, err := b.switcher()
	if err != nil {
		return api.Status{}, err
	}
	if now, _ := b.mode(); now == api.Autonomous {
		return api.Status{}, &api.Error{Code: api.CodeConflict, Message: "this laptop is not tethered", Reason: "its own cluster decides what it runs", Do: "`kith tether PEER` tethers it"}
	}
	if err := mode.Untether(ctx, o, report); err != nil {
		return api.Status{}, switchError("this laptop was not taken back", err)
	}
	return b.Status(ctx)
}

// confirmTether writes the owner's word down, a code or the company's ID, on the question to be run that waits at a peer. An ID may come
// before there is a question.
func (c *Cluster) confirmTether(ctx context.Context, k directory.Known, o api.TetherOptions) error {
	var peer v1alpha1.Peer
	if k.Peer != nil {
		if err := c.Client.Get(ctx, named(k.Peer.Name), &peer); client.IgnoreNotFound(err) != nil {
			return internal(err)
		}
	}
	request, out := peer.Spec.Request, peer.Status.Outgoing
	waits := request != nil && request.Tether && out.Attempt == request.Attempt && (out.RequestID != "" || out.Confirm != nil)
	switch {
	case waits:
		return c.confirm(ctx, &peer, api.PeerConfirm{Code: o.Code, ID: o.ID})
	case o.Code != "":
		return &api.Error{Code: api.CodeConflict, Message: "no request to be run by " + k.Name + " is pending that the code could be of",
			Do: "`kith tether " + k.Name + "` asks, and shows the code that its owner must see too"}
	}
	return nil
}

// unanswered reports without what is to be confirmed where the owner's word was given a moment ago.
func (c *Cluster) unanswered(ctx context.Context, name string, report func(api.Progress)) func(api.Progress) {
	return func(p api.Progress) {
		var peer v1alpha1.Peer
		if p.Confirm != nil && c.Client.Get(ctx, named(name), &peer) == nil && answered(asking.Word(&peer), *p.Confirm) {
			p.Confirm = nil
		}
		report(p)
	}
}

// switchError gives the error of a switch its code and says what was not done.
func switchError(not string, err error) error {
	var e *api.Error
	switch {
	case errors.As(err, &e), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errors.ErrUnsupported):
		return &api.Error{Code: api.CodeUnsupported, Message: not, Reason: "this kithd cannot do it", Do: "update Kith"}
	}
	return &api.Error{Code: api.CodeInternal, Message: not, Reason: err.Error(), Do: "`kith status` says how it stands; the log of kithd has more"}
}
