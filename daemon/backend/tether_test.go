package backend

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/consume/consumer"
	given "kith.dev/core/consume/images"
	"kith.dev/core/find/directory"
	"kith.dev/core/find/discovery"
	"kith.dev/core/local/cluster"
	"kith.dev/core/provide/hosting"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// switched is a mode that does what it is told.
type switched struct {
	mode    api.Mode
	tether  *api.Tether
	fail    error
	asked   []string // names of peers
	options api.TetherOptions
	asks    *api.Confirmation // that it reports
}

func (s *switched) Status() (api.Mode, *api.Tether) { return s.mode, s.tether }

func (s *switched) Check(_ context.Context, peer *v1alpha1.Peer) (api.TetherCheck, error) {
	s.asked = append(s.asked, "check "+peer.Name)
	return api.TetherCheck{Effects: []string{"all changes"}}, s.fail
}

func (s *switched) Tether(_ context.Context, peer *v1alpha1.Peer, o api.TetherOptions, report func(api.Progress)) error {
	s.asked, s.options = append(s.asked, "tether "+peer.Name), o
	report(api.Progress{Message: "asking " + peer.Name, Confirm: s.asks})
	if s.fail == nil {
		s.mode, s.tether = api.Tethered, &api.Tether{Peer: peer.Name, Step: "tethered"}
	}
	return s.fail
}

func (s *switched) Untether(_ context.Context, _ api.UntetherOptions, report func(api.Progress)) error {
	s.asked = append(s.asked, "untether")
	if s.fail == nil {
		s.mode, s.tether = api.Autonomous, nil
	}
	return s.fail
}

// steady is an engine that is ready.
type steady struct{ cluster.Engine }

func (steady) State() cluster.State     { return cluster.State{Phase: cluster.Ready} }
func (steady) Facts() cluster.Facts     { return cluster.Facts{NodeName: "alice"} }
func (steady) Changed() <-chan struct{} { return make(chan struct{}) }

// tetherable is alice's backend, who knows corp.
func tetherable(t *testing.T, mode *switched, corp *v1alpha1.Peer) *Backend {
	t.Helper()
	me, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	contacts := peering.NewContacts(peering.ContactsConfig{Identity: me, Log: log})
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(corp).WithObjects(corp).Build())
	c := &Cluster{Client: objects, Fresh: objects, Fleet: &consumer.Fleet{}, Host: &hosting.Host{Contracts: &grants.Contracts{}}}
	b := &Backend{
		Giver: given.New(nil, me, log),
		Me:    me, Directory: directory.New(me, contacts, discovery.NewTable(log), log), Engine: steady{}, Mode: mode, Log: log, News: &notify.Broadcast{},
		Cluster: func() *Cluster { return c }, Failing: func() []api.Problem { return nil }, Listening: func() []api.Listener { return nil },
		Exposed: func() *api.Exposed { return nil }, Publish: func(api.Event) {},
	}
	b.Directory.SetPeers([]*v1alpha1.Peer{corp})
	return b
}

func corpPeer(t *testing.T) *v1alpha1.Peer {
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "corp"}, Spec: v1alpha1.PeerSpec{ID: who.ID().String(), Endpoints: []string{"192.0.2.10:6450"}}}
}

func TestTetherAndUntetherReachTheMode(t *testing.T) {
	mode, corp := &switched{mode: api.Autonomous}, corpPeer(t)
	b := tetherable(t, mode, corp)
	check, err := b.CheckTether(t.Context(), corp.Spec.ID, false)
	if err != nil || check.Peer != "corp" || len(check.Effects) != 1 {
		t.Errorf("%+v, %v", check, err)
	}
	var said []string
	report := func(p api.Progress) { said = append(said, p.Message) }
	s, err := b.Tether(t.Context(), api.TetherOptions{Peer: corp.Spec.ID, ID: corp.Spec.ID, LocalWorkloads: api.DrainWorkloads}, report)
	if err != nil || s.Mode != api.Tethered || s.Tether == nil || s.Tether.Peer != "corp" {
		t.Errorf("%+v, %v", s, err)
	}
	if mode.options.Peer != "corp" || mode.options.LocalWorkloads != api.DrainWorkloads || mode.options.ID != corp.Spec.ID {
		t.Errorf("%+v", mode.options)
	}
	s, err = b.Untether(t.Context(), api.UntetherOptions{}, report)
	if err != nil || s.Mode != api.Autonomous || s.Tether != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := b.Untether(t.Context(), api.UntetherOptions{}, report); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("untether of who is not tethered: %v", err)
	}
	if got := strings.Join(append(mode.asked, said...), ", "); got != "check corp, tether corp, untether, asking corp" {
		t.Error(got)
	}
}

func TestATetherIsRefusedWithASentence(t *testing.T) {
	corp := corpPeer(t)
	report := func(api.Progress) {}
	for name, tc := range map[string]struct {
		fail    error
		options api.TetherOptions
		code    api.Code
		says    string
	}{
		"another ID":   {nil, api.TetherOptions{Peer: "corp", ID: corpPeer(t).Spec.ID}, api.CodeConflict, "corp was not asked: its ID is"},
		"no ID":        {nil, api.TetherOptions{Peer: "corp", ID: "corp"}, api.CodeInvalid, "a whole cluster ID"},
		"nobody":       {nil, api.TetherOptions{Peer: "korp"}, api.CodeNotFound, "korp"},
		"with a word":  {&api.Error{Code: api.CodeDeclined, Message: "the owner of corp declined"}, api.TetherOptions{Peer: "corp"}, api.CodeDeclined, "the owner of corp declined"},
		"a bare error": {errors.New("disk full"), api.TetherOptions{Peer: "corp"}, api.CodeInternal, "this laptop was not tethered to corp: disk full"},
		"not possible": {errors.ErrUnsupported, api.TetherOptions{Peer: "corp"}, api.CodeUnsupported, "this kithd cannot do it"},
	} {
		b := tetherable(t, &switched{mode: api.Autonomous, fail: tc.fail}, corp)
		_, err := b.Tether(t.Context(), tc.options, report)
		if !errors.Is(err, &api.Error{Code: tc.code}) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := tetherable(t, nil, corp)
	b.Mode = nil // engine "none"
	for what, call := range map[string]func() error{
		"check":    func() error { _, err := b.CheckTether(t.Context(), "corp", false); return err },
		"tether":   func() error { _, err := b.Tether(t.Context(), api.TetherOptions{Peer: "corp"}, report); return err },
		"untether": func() error { _, err := b.Untether(t.Context(), api.UntetherOptions{}, report); return err },
	} {
		if err := call(); !errors.Is(err, &api.Error{Code: api.CodeUnsupported}) {
			t.Errorf("%s without a Kubernetes: %v", what, err)
		}
	}
}

// While a company's cluster decides, nothing is asked of others, given to them, or ended behind the company's back.
func TestWhileTetheredNothingElseIsAgreedTo(t *testing.T) {
	corp := corpPeer(t)
	for mode, says := range map[api.Mode]string{
		api.Tethered:    "this laptop is tethered to corp, whose cluster decides",
		api.Tethering:   "this laptop is being tethered to corp",
		api.Untethering: "this laptop is being taken back from corp",
	} {
		b := tetherable(t, &switched{mode: mode, tether: &api.Tether{Peer: "corp"}}, corp)
		for what, call := range map[string]func() error{
			"peer":    func() error { _, err := b.Ask(t.Context(), "bob", api.PeerAsk{}, nil); return err },
			"offload": func() error { _, err := b.Offload(t.Context(), "shop", api.OffloadOptions{}, nil); return err },
			"accept":  func() error { _, err := b.Accept(t.Context(), "r1", nil); return err },
		} {
			if err := call(); !errors.Is(err, &api.Error{Code: api.CodeConflict}) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s while %s: %v", what, mode, err)
			}
		}
		if _, err := b.Unpeer(t.Context(), "corp", api.EndOptions{}, nil); err == nil || !strings.Contains(err.Error(), "`kith untether`") {
			t.Errorf("unpeer of the company while %s: %v", mode, err)
		}
	}
}

// The code, or the company's ID, is a word on the question that waits; then the mode follows the switch that there is.
func TestTheCodeOfATetherIsAWordOnItsQuestion(t *testing.T) {
	for name, tc := range map[string]struct {
		options func(corp *v1alpha1.Peer) api.TetherOptions
		waits   bool
		want    func(corp *v1alpha1.Peer) *v1alpha1.Confirm
		fails   bool
	}{
		"a code": {func(*v1alpha1.Peer) api.TetherOptions { return api.TetherOptions{Code: "402817"} }, true,
			func(*v1alpha1.Peer) *v1alpha1.Confirm { return &v1alpha1.Confirm{Attempt: 3, Code: "402817"} }, false},
		"an ID": {func(corp *v1alpha1.Peer) api.TetherOptions { return api.TetherOptions{ID: corp.Spec.ID} }, true,
			func(corp *v1alpha1.Peer) *v1alpha1.Confirm { return &v1alpha1.Confirm{Attempt: 3, ID: corp.Spec.ID} }, false},
		"neither":         {func(*v1alpha1.Peer) api.TetherOptions { return api.TetherOptions{} }, true, nil, false},
		"a code too soon": {func(*v1alpha1.Peer) api.TetherOptions { return api.TetherOptions{Code: "402817"} }, false, nil, true},
		"an ID first":     {func(corp *v1alpha1.Peer) api.TetherOptions { return api.TetherOptions{ID: corp.Spec.ID} }, false, nil, false},
	} {
		corp := corpPeer(t)
		corp.Spec.Request = &v1alpha1.ResourceRequest{Tether: true, Attempt: 3}
		corp.Status.Outgoing = v1alpha1.DirectionStatus{State: v1alpha1.StateRequested, Attempt: 3, RequestID: "r", Code: "402817"}
		if !tc.waits {
			corp.Spec.Request, corp.Status.Outgoing = nil, v1alpha1.DirectionStatus{}
		}
		mode := &switched{mode: api.Tethering, tether: &api.Tether{Peer: "corp", Step: "asking"}}
		b := tetherable(t, mode, corp)
		o := tc.options(corp)
		o.Peer = "corp"
		mode.asks = &api.Confirmation{Code: "402817"}
		_, err := b.Tether(t.Context(), o, func(p api.Progress) {
			if asksAgain := p.Confirm != nil; asksAgain != (tc.want == nil) {
				t.Errorf("%s: asks again: %t", name, asksAgain)
			}
		})
		if tc.fails != errors.Is(err, &api.Error{Code: api.CodeConflict}) || tc.fails != (err != nil) || tc.fails != (len(mode.asked) == 0) {
			t.Errorf("%s: %v, %v", name, err, mode.asked)
		}
		var now v1alpha1.Peer
		if err := b.Cluster().Client.Get(t.Context(), named("corp"), &now); err != nil {
			t.Fatal(err)
		}
		var said, want *v1alpha1.Confirm
		if now.Spec.Request != nil {
			said = now.Spec.Request.Confirm
		}
		if tc.want != nil {
			want = tc.want(corp)
		}
		if (said == nil) != (want == nil) || said != nil && *said != *want {
			t.Errorf("%s: %+v, want %+v", name, said, want)
		}
	}
}

// At the company an end of the peering gives the laptop back, and its status counts those that it runs.
func TestACompanyGivesALaptopBackByEndingThePeering(t *testing.T) {
	alice := corpPeer(t)
	alice.Name, alice.Spec.Tethered, alice.Spec.Request = "alice", &v1alpha1.Tethered{Policy: "laptops"}, &v1alpha1.ResourceRequest{Attempt: 1}
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	alice.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany, Step: "tethered", Since: &since}
	b := tetherable(t, &switched{mode: api.Autonomous}, alice)
	s, err := b.Status(t.Context())
	if err != nil || s.Counts.Laptops != 1 || s.Tether != nil {
		t.Errorf("%+v, %v", s.Counts, err)
	}
	if got := tetherOf(alice.Status.Tether); got == nil || *got != (api.PeerTether{Role: api.Company, Step: "tethered", Since: since.Time}) {
		t.Errorf("%+v", got)
	}
	if err := b.Cluster().end(t.Context(), b.Cluster().Client, "alice"); err != nil {
		t.Fatal(err)
	}
	var now v1alpha1.Peer
	if err := b.Cluster().Client.Get(t.Context(), named("alice"), &now); err != nil || now.Spec.Tethered != nil || now.Spec.Request != nil {
		t.Errorf("%+v, %v", now.Spec, err)
	}
}

// policies is the company's side, with one TetherPolicy or none.
type policies struct{ answer peering.TetherAnswer }

func (p policies) Weigh(context.Context, *v1alpha1.Peer) (peering.TetherAnswer, string, string, error) {
	return p.answer, "laptops", "no TetherPolicy there is for this laptop", nil
}

func (policies) Grant(context.Context, *v1alpha1.Peer) (peering.TetherGrant, error) {
	return peering.TetherGrant{User: "kith:laptop:a", Namespaces: []peering.TetherNamespace{{Name: "team-a", Role: "edit"}}}, nil
}

func TestARequestToBeRunIsShownAsSuch(t *testing.T) {
	r := &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: "alice-7f3a"}, Spec: v1alpha1.PeeringRequestSpec{
		PeerID: identity.ID{1}.String(), PeerName: "alice", Tether: true, Code: "402817", Expires: metav1.NewTime(time.Now().Add(time.Minute)),
	}}
	for answer, want := range map[peering.TetherAnswer]struct{ means, refusal, problem string }{
		peering.TetherAsks: {"this cluster runs it; its users work in team-a (edit)", "", "alice asks to be run by this cluster: this cluster runs it; its users work in team-a (edit)"},
		peering.TetherNo:   {"", "no TetherPolicy there is for this laptop", "alice asks to be run by this cluster: nothing: no TetherPolicy there is for this laptop"},
	} {
		objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(r).Build())
		c := &Cluster{Client: objects, Fresh: objects, Provider: provider.New(provider.Config{Client: objects, Fresh: objects, Company: policies{answer}, Name: "corp", Log: slog.New(slog.DiscardHandler)})}
		v, err := c.wouldGet(t.Context(), r)
		if err != nil || !v.Tether || len(v.Granted) > 0 || v.Means != want.means || v.Refusal != want.refusal {
			t.Errorf("%+v, %v", v, err)
		}
		if list := c.waiting(t.Context(), nil); len(list) != 1 || list[0].What != want.problem {
			t.Errorf("%+v", list)
		}
	}
}
