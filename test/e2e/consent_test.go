//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// consent is a question without amounts, then changes of one amount each: bob reads what his yes gives before he says it, in
// kith and in kubectl, and what he says yes to is what the contract has.
func consent(t *testing.T, alice, bob *lab.Laptop) {
	asked := func() (r request) { // bob's view of what alice asks
		t.Helper()
		eventually(t, 10*time.Second, "the request arrives at bob", func() string {
			for _, r = range requests(t, bob) {
				if r.Direction == "incoming" {
					return ""
				}
			}
			return "no request"
		})
		return r
	}
	inForce := func() (r api.Resources) {
		t.Helper()
		var list []api.Contract
		if err := json.Unmarshal([]byte(kith(t, alice, "contract", "list", "-o", "json")), &list); err != nil || len(list) != 1 {
			t.Fatalf("%d contracts, %v", len(list), err)
		}
		return list[0].Resources
	}
	becomes := func(want string) {
		t.Helper()
		eventually(t, 20*time.Second, "the contract grants "+want, func() string {
			now := inForce()
			delete(now, api.EphemeralStorage)
			if p := peerOf(t, alice, "bob"); p.Outgoing != "connected" || now.String() != want {
				return fmt.Sprintf("%s, %s", p.Outgoing, now)
			}
			return ""
		})
	}
	column := func(want string) {
		t.Helper()
		eventually(t, 10*time.Second, "kubectl shows what a yes gives", func() string {
			if out := kubectl(t, bob, "get", "peeringrequests"); !strings.Contains(out, "WOULD GET") || !strings.Contains(out, want) {
				return instead(out)
			}
			return ""
		})
	}

	awaitGuests(t, bob)
	kith(t, alice, "peer", "bob", "--wait=false")
	r := asked()
	var shared []api.Policy
	if err := json.Unmarshal([]byte(kith(t, bob, "share", "-o", "json")), &shared); err != nil || len(shared) != 1 {
		t.Fatalf("%d policies, %v", len(shared), err)
	}
	delete(r.Granted, api.EphemeralStorage) // which moves with what is free on the disk
	delete(shared[0].Offered, api.EphemeralStorage)
	if r.Granted.String() != shared[0].Offered.String() || len(r.Granted) < 3 || len(r.Asked)+len(r.InForce) > 0 {
		t.Errorf("all that is shared is %s; the request says %+v", shared[0].Offered, r)
	}
	column(fmt.Sprintf("cpu %s, memory %s, pods %s", r.Granted["cpu"], r.Granted["memory"], r.Granted["pods"]))
	if out := kith(t, bob, "requests"); !strings.Contains(out, "WOULD GET") || !strings.Contains(out, "cpu "+r.Granted["cpu"]+", memory ") {
		t.Error(out)
	}
	if out := kith(t, bob, "status"); !strings.HasPrefix(out, "waits for you: alice asks to use this laptop, and would get cpu "+r.Granted["cpu"]) {
		t.Error(out)
	}
	if out := kith(t, bob, "accept", "alice", "--yes"); !strings.Contains(out, "it gets "+r.Granted.String()) {
		t.Error(out)
	}
	confirm(t, alice, bob, r.Code)
	outgoing(t, alice, "connected")
	now := inForce()
	delete(now, api.EphemeralStorage)
	if now.String() != r.Granted.String() {
		t.Errorf("bob read %s and signed %s", r.Granted, now)
	}

	kith(t, alice, "peer", "bob", "--cpu", "300m", "--memory", "256Mi", "--pods", "7", "--wait=false")
	asked()
	kith(t, bob, "accept", "alice", "--yes")
	becomes("cpu 300m, memory 256Mi, pods 7")

	if out := kith(t, alice, "peer", "bob", "--cpu", "200m", "--wait=false"); !strings.Contains(out, "asked bob for cpu 300m → 200m, memory 256Mi, pods 7") {
		t.Error(out)
	}
	asked()
	column("cpu 300m → 200m, memory 256Mi, pods 7")
	if out := kith(t, alice, "requests"); !strings.Contains(out, "asked cpu 300m → 200m, memory 256Mi, pods 7") {
		t.Errorf("alice does not see her own question: %s", out)
	}
	if out := kith(t, bob, "accept", "alice", "--yes"); !strings.Contains(out, "it gets cpu 300m → 200m, memory 256Mi, pods 7") {
		t.Error(out)
	}
	becomes("cpu 200m, memory 256Mi, pods 7")

	for _, same := range [][]string{nil, {"--cpu", "200m"}, {"--memory", "256Mi", "--pods", "7"}} {
		if out := kith(t, alice, append([]string{"peer", "bob"}, same...)...); !strings.Contains(out, "nothing changes: bob grants that already") {
			t.Errorf("%v: %s", same, out)
		}
	}
	if list := requests(t, bob); len(list) != 0 {
		t.Errorf("bob is asked for what he grants: %+v", list)
	}

	kith(t, alice, "peer", "bob", "--cpu", "100000", "--wait=false")
	if r = asked(); r.Granted["cpu"] != shared[0].Offered["cpu"] || r.Asked["cpu"] != "100000" {
		t.Errorf("%+v", r)
	}
	if out := kith(t, bob, "accept", "alice", "--yes"); !strings.Contains(out, "cpu 200m → "+r.Granted["cpu"]+" (asked 100000), memory 256Mi, pods 7") {
		t.Error(out)
	}
	becomes("cpu " + r.Granted["cpu"] + ", memory 256Mi, pods 7")
	less := "asked cpu 100000, granted " + r.Granted["cpu"]
	eventually(t, time.Minute, "alice is told that it is less than she asked for", func() string {
		if out := kith(t, alice, "peers"); !strings.Contains(out, less) {
			return instead(out)
		}
		if out := kubectl(t, alice, "get", "peer", "bob", "-o", "jsonpath={.status.conditions[?(@.type=='GrantedInFull')].message}"); out != less {
			return "the Peer says " + out
		}
		return ""
	})

	if _, err := asking(t, alice, "peer", "bob", "--pods", "5", "--timeout", "2s"); err == nil || !strings.Contains(err.Error(), "`kith peer bob --withdraw` takes it back") {
		t.Errorf("%v", err)
	}
	asked()
	if out := kith(t, alice, "peer", "bob", "--withdraw"); !strings.Contains(out, "the request to bob is taken back") {
		t.Error(out)
	}
	eventually(t, 5*time.Second, "bob is not asked any more", func() string {
		if list := requests(t, bob); len(list) != 0 {
			return fmt.Sprintf("%+v", list)
		}
		return ""
	})
	becomes("cpu " + r.Granted["cpu"] + ", memory 256Mi, pods 7")
	if _, err := asking(t, alice, "peer", "bob", "--withdraw"); err == nil || !strings.Contains(err.Error(), "no request to bob waits for an answer") {
		t.Errorf("%v", err)
	}

	for line, why := range map[string]string{
		"peer bob --memory 4": "1Mi or more", "peer bob --cpu 0": "1m or more", "offload default --peers nobody": `no peer "nobody" here`,
	} {
		if out, err := alice.Kith(t.Context(), strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("kith %s: %v, %s", line, err, out)
		}
	}
	kith(t, alice, "unpeer", "bob", "--yes")
}
