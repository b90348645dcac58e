package sharing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

func TestNotesSayWhatAPolicyComesTo(t *testing.T) {
	node := list("cpu", "2", "memory", "4Gi", "pods", "110")
	peers := []*v1alpha1.Peer{acceptedPeer("bob", bobID), {}}
	peers[1].Name, peers[1].Spec.ID, peers[1].ResourceVersion = "carol", carolID, "1"
	p := policy("p", func(s *v1alpha1.SharingPolicySpec) {
		s.Amounts = map[string]v1alpha1.Amount{"cpu": "900", "memory": "4Gi", "pods": "50%", "example.com/fpga": "3"}
		s.ContractValidity = &metav1.Duration{Duration: time.Minute}
		s.Peers = []string{"bob", "carol", "dave", carolID}
	})
	want := []string{
		"cpu 900 is more than this laptop has: at most 2 will be offered",
		"no node here has example.com/fpga now, so none of it is offered: its device plugin, which counts the devices, does not run or found none",
		"contractValidity 1m0s cannot work, it must be a duration from 1h to 87600h (ten years): contracts run 1h0m0s",
		"no peer carol was accepted here, so that name stands for nobody",
		"no peer dave was accepted here, so that name stands for nobody",
	}
	if got := Notes(&p, supply.Supply{Nodes: node}, peers); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := Notes(Default(50), supply.Supply{Nodes: node, Own: list("cpu", "1", "memory", "2Gi", "pods", "50")}, nil); len(got) > 0 {
		t.Errorf("of the default policy: %q", got)
	}
	want = []string{"cpu: your own pods request 500m of the 2 here, so of the 2 shared at most 1500m will be promised anew; what was signed stays"}
	all := policy("p", func(s *v1alpha1.SharingPolicySpec) {
		s.Amounts = map[string]v1alpha1.Amount{"cpu": "100%", "memory": "1Gi", "pods": "1"}
	})
	if got := Notes(&all, supply.Supply{Nodes: node, Own: list("cpu", "500m", "memory", "3Gi")}, nil); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, part := range []string{"0%", ""} { // on, and of nothing
		nothing := policy("p", func(s *v1alpha1.SharingPolicySpec) {
			s.Amounts = map[string]v1alpha1.Amount{"cpu": "1", "memory": "1Gi", "pods": v1alpha1.Amount(part)}
			if part == "" {
				delete(s.Amounts, "pods")
			}
		})
		want := []string{"it gives nothing to anybody, since of pods nothing is shared: `kith share 50%` offers half of all"}
		if got := Notes(&nothing, supply.Supply{Nodes: node}, nil); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		nothing.Spec.Paused = true
		if got := Notes(&nothing, supply.Supply{Nodes: node}, nil); len(got) > 0 {
			t.Errorf("paused: %q", got)
		}
	}
}

func TestNamesBecomeIDsWhenTheyAreWritten(t *testing.T) {
	impostor := acceptedPeer("carol", identity.ID{9}.String())
	impostor.Status.Conditions = nil
	peers := []*v1alpha1.Peer{acceptedPeer("bob", bobID), impostor}
	got, err := Resolve([]string{"bob", strings.ToLower(carolID), bobID}, peers)
	if want := []string{bobID, carolID}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for ref, id := range map[string]string{"carol": impostor.Spec.ID, "dave": "", identity.ID{2}.Short(): "", "": "", carolID[:31]: ""} {
		var unknown *UnknownName
		if got, err := Resolve([]string{ref}, peers); !errors.As(err, &unknown) || unknown.ID != id {
			t.Errorf("%q: %v, %v", ref, got, err)
		}
	}
}
