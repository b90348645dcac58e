package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ask is what the CNI plugin sends when a pod got its address, before its first program runs; one in JSON on each
// connection. The answer is a line: nothing when the rules of the pod are in force, else why they are not.
type Ask struct {
	UID     string `json:"uid"`
	Address string `json:"address"`
	IPv6    string `json:"ipv6,omitempty"` // besides
}

// addresses that the pod has.
func (a Ask) addresses() ([]netip.Addr, error) {
	first, err := netip.ParseAddr(a.Address)
	if err != nil || a.IPv6 == "" {
		return []netip.Addr{first}, err
	}
	second, err := netip.ParseAddr(a.IPv6)
	return []netip.Addr{first, second}, err
}

// patience is how long a new pod is kept waiting for its rules. The kubelet tries again after that.
const patience = 10 * time.Second

// claim is a pod's addresses as the CNI plugin says.
type claim struct {
	uid       types.UID
	addresses []netip.Addr
	at        time.Time
	done      <-chan struct{} // closed by free, which may be called again
	free      func()          // when rules that know the pod are in force
}

func (c *Controller) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { c.socket.Close() })
	defer stop()
	for {
		conn, err := c.socket.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_ = conn.SetWriteDeadline(time.Now().Add(patience + time.Second))
			if err := c.admit(ctx, conn); err != nil {
				fmt.Fprint(conn, err)
			}
		}()
	}
}

// admit answers when the rules of a new pod are in force.
func (c *Controller) admit(ctx context.Context, from io.Reader) error {
	var ask Ask
	if err := json.NewDecoder(io.LimitReader(from, 4096)).Decode(&ask); err != nil {
		return fmt.Errorf("not understood: %w", err)
	}
	addresses, err := ask.addresses()
	if err != nil || ask.UID == "" {
		return fmt.Errorf("pod %q has no address: %q %q", ask.UID, ask.Address, ask.IPv6)
	}
	if len(c.policies.GetStore().ListKeys()) == 0 {
		return nil
	}
	settled, free := context.WithCancel(context.WithoutCancel(ctx))
	defer free()
	mine := &claim{uid: types.UID(ask.UID), addresses: addresses, at: time.Now(), done: settled.Done(), free: free}
	c.mu.Lock()
	c.claims[mine.uid] = mine
	c.mu.Unlock()
	c.wake()
	select {
	case <-mine.done:
		return nil
	case <-ctx.Done():
		return errors.New("kith-k8s is stopping")
	case <-time.After(patience):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return fmt.Errorf("NetworkPolicies are not in force: %w", c.why)
	}
	return fmt.Errorf("NetworkPolicies are not in force: this pod is not seen in the cluster yet")
}

// claimOf gives what the CNI plugin said of a pod, as long as its status says nothing of that. Callers hold mu.
func (c *Controller) claimOf(p *corev1.Pod) *claim {
	for _, uid := range []types.UID{p.UID, types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])} {
		if at := c.claims[uid]; at != nil {
			return at
		}
	}
	return nil
}

// settle lets those start whose rules are in force, and forgets claims that statuses have taken over.
func (c *Controller) settle(known []types.UID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why = err; err == nil {
		for _, uid := range known {
			c.claims[uid].free()
		}
	}
	shown := map[types.UID][]netip.Addr{}
	for _, o := range c.seen.pods.GetStore().List() {
		p := o.(*corev1.Pod)
		has := addressesOf(p)
		shown[p.UID], shown[types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])] = has, has
	}
	for uid, at := range c.claims {
		status, there := shown[uid]
		said := !slices.ContainsFunc(at.addresses, func(a netip.Addr) bool { return !slices.Contains(status, a) })
		if said || !there && time.Since(at.at) > time.Minute {
			delete(c.claims, uid)
		}
	}
}

// settleAll is settle without policies.
func (c *Controller) settleAll(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why = err; err != nil {
		return
	}
	for uid, at := range c.claims {
		at.free()
		delete(c.claims, uid)
	}
}
