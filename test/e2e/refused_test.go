//go:build lab && soak

package e2e

import (
	"strings"
	"testing"
	"time"
)

// refusedPods: what the peer will never run says so at once, and its controller's next pods go to another node, if there is one.
func refusedPods(t *testing.T, a *abroadIn) {
	a.apply(t, "refused.yaml")
	a.becomes(t, "deployment", "rooted", "{.status.readyReplicas}", "3")
	pods := kubectl(t, a.alice, "-n", "shop", "get", "pods", "-l", "app=rooted", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.status.phase} {.status.reason} {.status.conditions[?(@.type=="DisruptionTarget")].status}{"\n"}{end}`)
	failed := strings.Count(pods, "kith-bob Failed PodSecurity True\n")
	if home := strings.Count(pods, "alice Running  \n"); home != 3 || failed < 3 || failed > 6 || strings.Count(pods, "\n") != home+failed {
		t.Errorf("pods:\n%s", pods)
	}
	set := kubectl(t, a.alice, "-n", "shop", "get", "replicasets", "-l", "app=rooted", "-o", "jsonpath={.items[0].metadata.uid}")
	if notes := kubectl(t, a.alice, "get", "namespace", "shop", "-o", `jsonpath={.metadata.annotations.kith\.dev/refused}`); !strings.HasPrefix(notes, set+"/bob/") || strings.Contains(notes, ",") {
		t.Errorf("noted: %s", notes)
	}
	a.becomes(t, "pod", "tuned", "{.status.phase} {.status.reason}", "Failed SysctlForbidden")
	a.becomes(t, "pod", "windows", "{.status.phase} {.status.reason}", "Failed PodOSNotSupported")
	time.Sleep(10 * time.Second) // long enough for others in their place
	a.becomes(t, "pod", "naked", "{.status.phase} {.status.reason}", "Pending PodSecurity")
	a.event(t, "naked", "PodSecurity", "bob refuses: ")
	if out := kubectl(t, a.alice, "-n", "shop", "get", "pods", "-l", "app=pinned", "-o", "jsonpath={range .items[*]}{.status.phase} {.status.reason}{end}"); out != "Pending PodSecurity" {
		t.Errorf("pods that no other node takes: %q", out)
	}
	kubectl(t, a.alice, "-n", "shop", "delete", "deployment/rooted", "deployment/pinned", "pod/naked", "pod/tuned", "pod/windows", "--wait=false")
}
