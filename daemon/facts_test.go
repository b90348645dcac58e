package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"kith.dev/core/base/notify"
	"kith.dev/core/local/cluster"
)

// known is an engine of which something is known.
type known struct {
	cluster.Engine
	changed notify.Broadcast
	state   cluster.State
	facts   cluster.Facts
	config  rest.Config
}

func (k *known) Changed() <-chan struct{} { return k.changed.Wait() }
func (k *known) State() cluster.State     { return k.state }
func (k *known) Facts() cluster.Facts     { return k.facts }
func (k *known) RESTConfig() *rest.Config { return &k.config }

func TestControllersAreMadeAnewForAnotherCluster(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*known)
		anew   bool
	}{
		"nothing":                  {func(*known) {}, false},
		"not ready":                {func(k *known) { k.state.Phase, k.facts.NodeName = cluster.Starting, "bob" }, false},
		"an upgrade":               {func(k *known) { k.facts.Version = "v1.37.0+k3s1" }, false},
		"another node name":        {func(k *known) { k.facts.NodeName = "bob" }, true},
		"a renewed certificate":    {func(k *known) { k.config.CertData = []byte("newer") }, true},
		"a certificate of another": {func(k *known) { k.config.CAData = []byte("other") }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &known{state: cluster.State{Phase: cluster.Ready}, facts: cluster.Facts{NodeName: "alice", Version: "v1.36.3+k3s1"}}
			k.config.CertData, k.config.CAData = []byte("cert"), []byte("ca")
			d := &Daemon{engine: k}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go d.watchFacts(ctx, cancel)
			synctest.Wait()
			tt.change(k)
			k.changed.Notify()
			synctest.Wait()
			if anew := errors.Is(context.Cause(ctx), errOther); anew != tt.anew {
				t.Errorf("%s: made anew %t", what, anew)
			}
		})
	}
}
