package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/consume/remote"
)

func TestEventsOfWhatPodsNeedComeHome(t *testing.T) {
	for _, kind := range kinds.EventsOf {
		if homeObjects[kind] == nil {
			t.Errorf("nobody reads a %s of home", kind)
		}
	}
	if len(homeObjects) != len(kinds.EventsOf) {
		t.Errorf("%d kinds are read, %d are told of", len(homeObjects), len(kinds.EventsOf))
	}
	meta := func(name string, uid types.UID) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}
	}
	for name, c := range map[string]struct {
		kind, of string
		abroad   types.UID
		change   func(*corev1.Event)
		want     string // what home has an event of, by its UID
	}{
		"a claim":                       {"PersistentVolumeClaim", "data", "any", nil, "home-claim"},
		"a service":                     {"Service", "web", "abroad-web", nil, "home-web"},
		"a ConfigMap":                   {"ConfigMap", "settings", "abroad-settings", nil, "home-settings"},
		"a Secret":                      {"Secret", "key", "abroad-key", nil, "home-key"},
		"a service of before":           {"Service", "web", "of-before", nil, ""},
		"one that is not at home":       {"PersistentVolumeClaim", "other", "any", nil, ""},
		"a service the peer has itself": {"Service", "own", "own", nil, ""},
		"no name that home has":         {"PersistentVolumeClaim", "../secrets/key", "any", nil, ""},
		"a kind that does not travel":   {"Node", "data", "any", nil, ""},
		"a pod, by the wrong way":       {"Pod", "data", "any", nil, ""},
		"no kind":                       {"", "data", "any", nil, ""},
		"much of it":                    {"PersistentVolumeClaim", "data", "any", func(e *corev1.Event) { e.Message, e.Reason = strings.Repeat("é", 5000), strings.Repeat("R", 500) }, "home-claim"},
	} {
		t.Run(name, func(t *testing.T) {
			home := fake.NewClientset(
				&corev1.PersistentVolumeClaim{ObjectMeta: meta("data", "home-claim")}, &corev1.Service{ObjectMeta: meta("web", "home-web")},
				&corev1.ConfigMap{ObjectMeta: meta("settings", "home-settings")}, &corev1.Secret{ObjectMeta: meta("key", "home-key")}, &corev1.Service{ObjectMeta: meta("own", "home-own")})
			n := mirrored(t, home)
			for kind, name := range map[string]string{"Service": "web", "ConfigMap": "settings", "Secret": "key"} {
				if err := n.view.Metadata[kind].Put(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-1", Name: name, UID: types.UID("abroad-" + name)}}); err != nil {
					t.Fatal(err)
				}
			}
			e := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop-1", Name: "e", UID: "e-1", Labels: map[string]string{"of": "the peer"}, Annotations: map[string]string{"of": "the peer"}},
				InvolvedObject: corev1.ObjectReference{Kind: c.kind, Namespace: "shop-1", Name: c.of, UID: c.abroad}, Related: &corev1.ObjectReference{Kind: "Node", Name: "bobs"},
				Reason: "ProvisioningFailed", Message: "no room", Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "provisioner", Host: "bobs"},
			}
			if c.change != nil {
				c.change(e)
			}
			tell := func() []corev1.Event {
				t.Helper()
				if err := n.view.OtherEvents.Put(e.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				k, _ := n.events.queue.Get()
				n.events.queue.Done(k)
				if err := n.events.tell(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				list, err := home.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return list.Items
			}
			told := tell()
			if c.want == "" {
				if len(told) != 0 {
					t.Fatalf("home has an event of %+v", told[0].InvolvedObject)
				}
				return
			}
			if len(told) != 1 {
				t.Fatalf("%d events", len(told))
			}
			is := told[0]
			if o := is.InvolvedObject; string(o.UID) != c.want || o.Kind != c.kind || o.Namespace != "shop" || o.Name != c.of || is.Namespace != "shop" {
				t.Errorf("it is of %+v", o)
			}
			if is.Source.Host != "kith-bob" || is.Related != nil || len(is.Labels) != 2 || len(is.Annotations) != 0 || len(is.Message) > 1024 || len(is.Reason) > 128 {
				t.Errorf("%+v", is)
			}
			// Again, and more often.
			home.ClearActions()
			if tell(); slices.ContainsFunc(home.Actions(), func(a k8stesting.Action) bool { return a.GetVerb() != "list" }) {
				t.Errorf("told twice: %v", home.Actions())
			}
			e.Count = 7
			if told = tell(); len(told) != 1 || told[0].Count != 7 {
				t.Errorf("%d events, the first %d times", len(told), told[0].Count)
			}
		})
	}
}

// What home cannot be asked for now is told later.
func TestAnEventWaitsForHome(t *testing.T) {
	home := fake.NewClientset()
	home.PrependReactor("get", "persistentvolumeclaims", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("it starts") })
	n := mirrored(t, home)
	if err := n.view.OtherEvents.Put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-1", Name: "e", UID: "e-1"}, InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}}); err != nil {
		t.Fatal(err)
	}
	k, _ := n.events.queue.Get()
	if err := n.events.tell(t.Context(), k); err == nil || !strings.Contains(err.Error(), "PersistentVolumeClaim shop/data") {
		t.Error(err)
	}
}

// A peer that tells of ever more events costs home no more than so many requests a second.
func TestEventsOfAPeerAreBounded(t *testing.T) {
	n := mirrored(t, fake.NewClientset(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1"}}))
	asked := 0
	n.cfg.Home.(*fake.Clientset).PrependReactor("get", "persistentvolumeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		asked++
		return false, nil, nil
	})
	began := time.Now()
	for i := range 3 * eventsBurst {
		name := fmt.Sprint("e", i)
		if err := n.view.OtherEvents.Put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-1", Name: name, UID: types.UID(name)}, InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // who would wait any longer does not begin
		if err := n.events.tell(ctx, eventKey{"shop", name, true}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	if took := time.Since(began); asked == 0 || asked > eventsBurst+1+int(eventsPerSecond*took.Seconds()) {
		t.Errorf("home is asked %d times within %v", asked, took)
	}
}

// mirrored is a node whose peer has shop-1 for shop.
func mirrored(t *testing.T, home *fake.Clientset) *Node {
	t.Helper()
	n, err := New(Config{
		Home: home, Abroad: peerAt(t, "https://bob.invalid", http.DefaultTransport), View: noView(), Twins: &askedTwins{}, Permit: anybody, PeerName: "bob", NodeName: "kith-bob",
		NodeIP: netip.MustParseAddr("10.0.0.1"), KubeletPort: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.queue.ShutDown)
	t.Cleanup(n.events.queue.ShutDown)
	if err := n.view.Twins.Put(&remote.Twin{Name: "shop-1", Home: "shop"}); err != nil {
		t.Fatal(err)
	}
	return n
}
