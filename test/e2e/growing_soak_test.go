//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// TestAContractGrowsWithPodsThatWaitAndGivesBack: alice's Deployment does not fit into what bob granted; her PeeringPolicy asks for more, his
// SharingPolicy says yes, the pods run, are scaled down, and she gives back.
func TestAContractGrowsWithPodsThatWaitAndGivesBack(t *testing.T) {
	alice, bob := growingPair(t)
	seeks(t, alice)
	granted := func(want string, within time.Duration) {
		t.Helper()
		eventually(t, within, "both have a contract for cpu "+want, func() string {
			for _, p := range []*lab.Laptop{alice, bob} {
				if cpu := grantedAt(t, p); cpu != want {
					return fmt.Sprintf("%s: %q; %+v", p.Name(), cpu, family(t, alice))
				}
			}
			return ""
		})
	}
	granted("100m", time.Minute)
	apply(t, alice, hungry(3))
	eventually(t, time.Minute, "the policy sees them, and kith why says so", func() string {
		is := family(t, alice)
		out := kith(t, alice, "why", "-n", "shop", "deployment/web")
		if is.State != v1alpha1.SeekingGrowing || is.Waiting != 3 || !strings.Contains(out, "PeeringPolicy family asks for room") {
			return fmt.Sprintf("%+v\n%s", is, out)
		}
		return ""
	})
	t.Log(kith(t, alice, "why", "-n", "shop", "deployment/web"))
	granted("450m", 3*time.Minute)
	waitReady(t, alice, 3, "-n", "shop", "-l", "app=web")
	saidOf(t, alice, "MoreAsked", "MoreGranted")

	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "1")
	granted("150m", 5*time.Minute) // one still runs
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=web")
	saidOf(t, alice, "GivingBack", "GaveBack")

	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "4")
	eventually(t, 4*time.Minute, "more than the limit is not asked for", func() string {
		if is := family(t, alice); is.State != v1alpha1.SeekingFull || is.Waiting != 1 {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	granted("450m", time.Second)
	waitReady(t, alice, 3, "-n", "shop", "-l", "app=web", "--field-selector", "status.phase=Running")
	t.Log(kubectl(t, alice, "get", "events", "-A", "--field-selector", "involvedObject.kind=PeeringPolicy"))
}
