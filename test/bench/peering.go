package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"kith.dev/core/api"
)

// peeringRounds has alice ask, bob accept, and alice end it, again and again. Everything is seen by streams: events of
// kithd, a watch on the node.
func peeringRounds(ctx context.Context, r *rig) error {
	if err := r.ready(ctx); err != nil {
		return err
	}
	for range r.rounds {
		if err := r.peer(ctx, true); err != nil {
			return err
		}
		began := time.Now()
		if out, err := r.alice.Kith(ctx, "unpeer", "bob", "--yes"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		r.report.Took("unpeer, no pods abroad: the command", time.Since(began))
		clear, err := until(ctx, "bob is rid of alice", func() bool { return r.bob.peer(ctx, "alice").Incoming == api.StateNone })
		if err != nil {
			return err
		}
		r.report.Took("unpeer, no pods abroad: until the provider is clear", clear.Sub(began))
	}
	return nil
}

// ready waits until alice can ask bob, who offers enough for what the group makes.
func (r *rig) ready(ctx context.Context) error {
	if err := r.laptops(ctx); err != nil {
		return err
	}
	change := api.PolicyChange{Amounts: map[string]string{api.Pods: fmt.Sprint(r.room()), api.CPU: "90%"}}
	if _, err := until(ctx, "both kithd are ready, after their clusters", func() bool {
		_, err := r.alice.kith.Offloads(ctx)
		if err == nil {
			_, err = r.bob.kith.SetPolicy(ctx, api.DefaultPolicy, change)
		}
		return err == nil
	}); err != nil {
		return err
	}
	_, err := until(ctx, "alice reaches bob", func() bool { return r.alice.peer(ctx, "bob").Reachable })
	return err
}

// peer takes one round from asking to connected; write says whether its times go into the report.
func (r *rig) peer(ctx context.Context, write bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	took := func(name string, d time.Duration) {
		if write {
			r.report.Took(name, d)
		}
	}
	atAlice, err := events(ctx, r.alice.kith, false)
	if err != nil {
		return err
	}
	atBob, err := events(ctx, r.bob.kith, false)
	if err != nil {
		return err
	}
	began, err := r.ask(ctx)
	if err != nil {
		return err
	}
	request, err := happens(ctx, atBob, began, api.EventRequestReceived, "alice")
	if err != nil {
		return err
	}
	took("ask, until the request shows at the provider", request.at.Sub(began))
	id := strings.TrimPrefix(request.Object, "request/")
	var code string
	if _, err := until(ctx, "kithd lists the request it told of", func() (listed bool) { code, listed = r.bob.lists(ctx, id); return listed }); err != nil {
		return err
	}

	ready := r.nodeReady(ctx)
	began = time.Now()
	if out, err := r.bob.Kith(ctx, "accept", id, "--yes"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	took("kith accept: the command itself", time.Since(began))
	if err := r.confirm(ctx, atAlice, began, code); err != nil {
		return err
	}
	signed, err := happens(ctx, atAlice, began, api.EventContractSigned, "bob")
	if err != nil {
		return err
	}
	took("accept, until the contract is signed", signed.at.Sub(began))
	node := <-ready
	if node.err != nil {
		return node.err
	}
	took("accept, until the virtual node is Ready", node.at.Sub(began))
	connected, err := happens(ctx, atAlice, began, api.EventPeerConnected, "bob")
	if err != nil {
		return err
	}
	if p := r.alice.peer(ctx, "bob"); !p.Tunnel.Up {
		return fmt.Errorf("alice says connected and shows no tunnel: %+v", p)
	}
	if node.at.After(connected.at) {
		connected = timed{at: node.at}
	}
	took("accept, until node Ready and tunnel up", connected.at.Sub(began))
	return nil
}

// ask has alice ask bob, and says when. Bob bounds how often one cluster asks, which a quick machine meets: then it waits.
func (r *rig) ask(ctx context.Context) (began time.Time, err error) {
	ask := api.PeerAsk{Resources: api.Resources{api.CPU: fmt.Sprintf("%dm", max(1500, r.room())), api.Memory: fmt.Sprintf("%dMi", max(4096, r.room())), api.Pods: fmt.Sprint(r.room())}}
	for {
		began = time.Now()
		_, err = r.alice.kith.Ask(ctx, "bob", ask, nil)
		if err == nil || !strings.Contains(err.Error(), "too many questions") {
			return began, err
		}
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return began, err
		}
	}
}

// lists says whether a request can be answered, and the code that its owner sees; none when the key is known.
func (n *node) lists(ctx context.Context, id string) (code string, listed bool) {
	list, err := n.kith.Requests(ctx)
	i := slices.IndexFunc(list, func(r api.Request) bool { return r.ID == id })
	if err != nil || i < 0 {
		return "", false
	}
	return list[i].Code, true
}

// confirm has alice confirm the code as bob's screen shows it, when she is asked to: the first time.
func (r *rig) confirm(ctx context.Context, atAlice <-chan timed, after time.Time, code string) error {
	if code == "" {
		return nil
	}
	if _, err := happens(ctx, atAlice, after, api.EventConfirm, "bob"); err != nil {
		return err
	}
	_, err := r.alice.kith.ConfirmPeer(ctx, "bob", api.PeerConfirm{Code: code})
	return err
}

type moment struct {
	at  time.Time
	err error
}

// nodeReady watches for alice's node of bob to become Ready.
func (r *rig) nodeReady(ctx context.Context) <-chan moment {
	result := make(chan moment, 1)
	w, err := r.alice.kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", abroad).String()})
	if err != nil {
		result <- moment{err: err}
		return result
	}
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					result <- moment{at: time.Now()}
					return
				}
			}
		}
		result <- moment{err: fmt.Errorf("the node %s was not Ready before the watch ended (%w)", abroad, context.Cause(ctx))}
	}()
	return result
}

// befriend makes sure that alice consumes from bob, and may send the pods of the benchmark's namespace there.
func (r *rig) befriend(ctx context.Context) error {
	if err := r.ready(ctx); err != nil {
		return err
	}
	if r.alice.peer(ctx, "bob").Outgoing == api.StateConnected {
		return nil
	}
	if err := r.peer(ctx, false); err != nil {
		return err
	}
	if err := r.ensureNamespace(ctx); err != nil {
		return err
	}
	if _, err := r.alice.kith.Offload(ctx, namespace, api.OffloadOptions{}, nil); err != nil {
		return err
	}
	// The first pod makes the twin namespace, and each laptop reads the image once.
	for name, node := range map[string]string{"first-home": "alice", "first-away": abroad} {
		if err := r.start(ctx, r.alice, namespace, pod(name, node, echo())); err != nil {
			return err
		}
		r.remove(ctx, r.alice, namespace, name)
	}
	return nil
}
