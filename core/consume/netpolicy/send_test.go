package netpolicy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// provider is the other side, as far as a Peer sees it.
type provider struct {
	*Peer
	client client.Client
	events *record.FakeRecorder

	mu     sync.Mutex
	got    []*Policies
	answer Answer
	err    error
}

var errOld = errors.New("no such route")

func newProvider(policies ...string) *provider {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank"}}}
	for _, name := range policies {
		objects = append(objects, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	p := &provider{client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build(), events: record.NewFakeRecorder(100)}
	home := &Home{reader: p.client}
	p.Peer = home.Peer(Config{
		Name: "bob", Recorder: p.events, Log: slog.New(slog.DiscardHandler),
		Put: func(_ context.Context, m *Policies) (*Answer, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.got = append(p.got, m)
			return &p.answer, p.err
		},
		Final: func(err error) (string, bool) { return err.Error(), errors.Is(err, errOld) },
	})
	return p
}

// heard gives what was sent since the last time, each message as the names in it.
func (p *provider) heard() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.got {
		var names []string
		for _, one := range m.Policies {
			names = append(names, one.Name)
		}
		list = append(list, strings.Join(names, "+"))
	}
	p.got = nil
	return list
}

func (p *provider) says(a Answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.err = a, err
}

func (p *provider) runs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	synctest.Wait()
}

func (p *provider) want(t *testing.T, when string, messages ...string) {
	t.Helper()
	time.Sleep(pace)
	synctest.Wait()
	if got := p.heard(); !slices.Equal(got, messages) {
		t.Errorf("%s: sent %q, want %q", when, got, messages)
	}
}

func TestAPeerIsToldWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider("deny")
		p.runs(t)
		p.Wake()
		p.want(t, "without a twin")
		p.Open("shop")
		p.want(t, "with one", "deny")
		p.Open("shop")
		p.Wake()
		p.want(t, "when nothing changed")
		p.Open("bank")
		p.want(t, "with another, which a policy may name", "deny")
		if err := p.client.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "more"}}); err != nil {
			t.Fatal(err)
		}
		p.home.changed.Notify()
		p.want(t, "with a policy more", "deny+more")
		if err := p.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		p.want(t, "before a pod")
		p.Close("shop")
		p.want(t, "without the twin", "")
	})
}

func TestWithoutPoliciesTwinsCostNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider()
		p.runs(t)
		p.Open("shop")
		p.want(t, "the first: nobody knows what is there", "")
		p.Open("bank")
		p.want(t, "another")
	})
}

func TestAPodWaitsForItsPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider("deny")
		p.says(Answer{}, errors.New("no answer in time"))
		p.runs(t)
		p.Open("shop")
		if err := p.Prepare(t.Context()); err == nil {
			t.Error("it goes abroad")
		}
		p.heard()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(p.heard()); n < 2 || n > 6 {
			t.Errorf("sent %d times in ten seconds", n)
		}
		p.says(Answer{}, nil)
		time.Sleep(retryAtMost)
		p.heard()
		if err := p.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		p.want(t, "afterwards")
		if len(p.events.Events) > 0 {
			t.Errorf("told: %s", <-p.events.Events)
		}
	})
}

func TestWhatDoesNotHoldIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider("deny", "more")
		p.says(Answer{}, errOld)
		p.runs(t)
		p.Open("shop")
		p.want(t, "an older peer", "deny+more")
		if err := p.Prepare(t.Context()); err != nil {
			t.Errorf("its pods wait for ever: %v", err)
		}
		events := func() (list []string) {
			for len(p.events.Events) > 0 {
				list = append(list, <-p.events.Events)
			}
			return list
		}
		if got := events(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning NotEnforcedAbroad ") || !strings.Contains(got[0], "no such route") {
			t.Errorf("told: %q", got)
		}
		p.Open("bank")
		p.want(t, "again", "deny+more")
		if got := events(); len(got) != 0 {
			t.Errorf("told again: %q", got)
		}
		p.says(Answer{Refused: []Refused{{"shop", "more", "bad port"}, {"den", "none", "?"}}}, nil)
		p.Again()
		p.want(t, "a new peer", "deny+more")
		if got := events(); len(got) != 1 || !strings.Contains(got[0], "bad port") {
			t.Errorf("told: %q", got)
		}
	})
}

func TestWithANetworkPluginAtHomeItIsSaidWhatThatMayNotEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider("deny")
		p.home.plugin = true
		p.runs(t)
		p.Open("shop")
		p.want(t, "at first", "deny")
		p.Again()
		p.want(t, "again", "deny")
		if n := len(p.events.Events); n != 1 {
			t.Fatalf("%d events", n)
		}
		if got := <-p.events.Events; !strings.Contains(got, "network plugin") {
			t.Error(got)
		}
	})
}
