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

// TestAnswersAndKeys asks in every way that does not end in a peering: declined, nothing offered, a changed key.
func TestAnswersAndKeys(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, 20*time.Second, "alice sees bob", func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	t.Run("declined", func(t *testing.T) {
		kith(t, alice, "peer", "bob", "--wait=false")
		eventually(t, 10*time.Second, "the request arrives", func() string {
			if len(requests(t, bob)) == 0 {
				return "no request"
			}
			return ""
		})
		kith(t, bob, "decline", "alice")
		outgoing(t, alice, "declined")
		if peer := kubectl(t, bob, "get", "peers", "-o", "name"); strings.TrimSpace(peer) != "" {
			t.Errorf("a declined stranger left %s at bob", peer)
		}
	})
	t.Run("nothing offered", func(t *testing.T) {
		kith(t, bob, "share", "off")
		eventually(t, time.Minute, "alice sees that bob gives nothing now, before she asks", func() string {
			if p := peerOf(t, alice, "bob"); p.Gives == nil || p.Gives.State != api.GivesPaused {
				return fmt.Sprintf("%+v", p.Gives)
			}
			return ""
		})
		if out, err := asking(t, alice, "peer", "bob"); err == nil || !strings.Contains(err.Error(), "sharing is paused") {
			t.Errorf("asked for nothing: %v %s", err, out)
		}
		if list := requests(t, bob); len(list) != 0 {
			t.Errorf("a question that no yes could answer: %+v", list)
		}
		if out := kith(t, bob, "events"); !strings.Contains(out, "alice asked to use this laptop, and was told that there is nothing for it") {
			t.Error(out)
		}
		kith(t, bob, "share", "on")
		kith(t, alice, "peer", "bob", "--wait=false")
		eventually(t, 10*time.Second, "the request arrives", func() string {
			if list := requests(t, bob); len(list) != 1 {
				return fmt.Sprint(list)
			}
			return ""
		})
		kith(t, bob, "share", "off")
		eventually(t, 10*time.Second, "the request says that it gives nothing", func() string {
			if list := requests(t, bob); len(list) != 1 || !strings.Contains(list[0].Refusal, "sharing is paused") {
				return fmt.Sprint(list)
			}
			return ""
		})
		if _, err := bob.Kith(t.Context(), "accept", "alice", "--yes"); err == nil || !strings.Contains(err.Error(), "nothing can be granted to alice: sharing is paused") {
			t.Errorf("accepted nothing: %v", err)
		}
		name := strings.TrimPrefix(strings.TrimSpace(kubectl(t, bob, "get", "peeringrequests", "-o", "name")), "peeringrequest.kith.dev/")
		yes := []string{"patch", "peeringrequest", name, "--subresource=status", "--type=merge", "-p", `{"status":{"answer":"Accepted","answeredBy":"kubectl"}}`}
		if _, err := bob.Kubectl(t.Context(), yes...); err == nil || !strings.Contains(err.Error(), "nothing can be granted: status.grant.refusal says why") {
			t.Errorf("accepted nothing with kubectl: %v", err)
		}
		kith(t, bob, "decline", "alice")
		outgoing(t, alice, "declined")
		kith(t, bob, "share", "50%")
	})
	t.Run("another code takes the request back, and nothing is signed", func(t *testing.T) {
		kith(t, alice, "peer", "bob", "--wait=false")
		code := ""
		eventually(t, 10*time.Second, "the request arrives, with the address it came from", func() string {
			var list []struct{ Code, Address string }
			if out := kith(t, bob, "requests", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 1 || list[0].Code == "" {
				return instead(out)
			}
			at, err := alice.Address()
			if code = list[0].Code; err != nil || list[0].Address != at.String() {
				t.Errorf("the request is shown as from %s, alice is %s (%v)", list[0].Address, at, err)
			}
			return ""
		})
		accept(t, bob)
		eventually(t, 10*time.Second, "alice is asked to compare", func() string {
			_, err := asking(t, alice, "peer", "bob", "--timeout", "5s") // no terminal: it says what to do
			if err == nil || !strings.Contains(err.Error(), code[:3]+" "+code[3:]) || !strings.Contains(err.Error(), "kith confirm bob --code") {
				return fmt.Sprint(err)
			}
			return ""
		})
		if out := kubectl(t, alice, "get", "contracts", "-o", "name") + kubectl(t, bob, "get", "contracts", "-o", "name"); strings.TrimSpace(out) != "" {
			t.Fatalf("signed before it was confirmed: %s", out)
		}
		// A daemon that starts anew finds the question in the objects.
		if err := alice.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "kithd of alice is ready", func() string { return engineReady(t, alice) })
		other := "000000"
		if code == other {
			other = "111111"
		}
		if out, err := alice.Kith(t.Context(), "confirm", "bob", "--code", other); err == nil || !strings.Contains(err.Error(), "try once more") {
			t.Errorf("%v: %s", err, out)
		}
		if p := peerOf(t, alice, "bob"); p.Outgoing != "requested" || p.Code != code {
			t.Errorf("mistyped once: %+v", p)
		}
		if out, err := bob.Kith(t.Context(), "accept", "alice", "--yes"); err == nil || !strings.Contains(err.Error(), "was accepted already") {
			t.Errorf("twice: %v: %s", err, out)
		}
		if out, err := alice.Kith(t.Context(), "confirm", "bob", "--code", other); err == nil || !strings.Contains(err.Error(), "the codes differ") {
			t.Errorf("%v: %s", err, out)
		}
		if p := peerOf(t, alice, "bob"); p.Outgoing != "declined" || !strings.Contains(p.Why, "taken back") {
			t.Errorf("%+v", p)
		}
		if out, _ := alice.Kith(t.Context(), "events", "-o", "json"); !strings.Contains(out, "somebody may stand in between") {
			t.Errorf("no word of it in the events: %s", out)
		}
		eventually(t, 20*time.Second, "bob is told that the codes differ", func() string {
			if out := kith(t, bob, "events", "-o", "json"); !strings.Contains(out, "found another code than the one here") {
				return instead(out)
			}
			return ""
		})
		if out := kubectl(t, alice, "get", "contracts", "-o", "name") + kubectl(t, bob, "get", "contracts", "-o", "name"); strings.TrimSpace(out) != "" {
			t.Errorf("signed all the same: %s", out)
		}
	})
	t.Run("kubectl confirms too", func(t *testing.T) {
		kith(t, alice, "peer", "bob", "--cpu", "200m", "--wait=false")
		accept(t, bob)
		var code, attempt string
		eventually(t, 10*time.Second, "the Peer says what to confirm", func() string {
			fields := strings.Fields(kubectl(t, alice, "get", "peer", "bob", "-o", "jsonpath={.status.outgoing.confirm.code} {.status.outgoing.attempt}"))
			if len(fields) != 2 {
				return fmt.Sprint(fields)
			}
			code, attempt = fields[0], fields[1]
			return ""
		})
		kubectl(t, alice, "patch", "peer", "bob", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"request":{"confirm":{"attempt":%s,"code":"%s"}}}}`, attempt, code))
		outgoing(t, alice, "connected")
		kith(t, alice, "unpeer", "bob", "--yes")
		kith(t, alice, "forget", "bob")
		kith(t, bob, "forget", "alice")
	})
	t.Run("a whole ID is a comparison of the key", func(t *testing.T) {
		kith(t, bob, "share", "--auto-accept")
		var status struct{ ID string }
		if err := json.Unmarshal([]byte(kith(t, bob, "status", "-o", "json")), &status); err != nil { // as bob gives it to alice
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "alice sees bob", func() string { return map[bool]string{false: "not yet"}[peerOf(t, alice, "bob").Reachable] })
		if out, err := asking(t, alice, "peer", status.ID, "--cpu", "200m", "--timeout", "3m"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if who := kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.conditions[?(@.type=='Accepted')].status}"); who == "True" {
			t.Error("a policy for everybody made alice's key one that bob's owner compared")
		}
		kith(t, bob, "share", "--auto-accept=false")
		kith(t, alice, "unpeer", "bob", "--yes")
		kith(t, alice, "forget", "bob")
		kith(t, bob, "forget", "alice")
		eventually(t, 20*time.Second, "alice sees bob", func() string { return map[bool]string{false: "not yet"}[peerOf(t, alice, "bob").Reachable] })
	})
	t.Run("the owner sees what a yes gives, and a change keeps what it does not name", func(t *testing.T) { consent(t, alice, bob) })
	t.Run("other amounts are the next revision", func(t *testing.T) {
		befriend(t, alice, bob, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
		kith(t, alice, "peer", "bob", "--cpu", "300m", "--memory", "256Mi", "--pods", "7", "--wait=false")
		accept(t, bob)
		for _, p := range []*lab.Laptop{alice, bob} {
			eventually(t, 10*time.Second, p.Name()+" has revision 2", func() string {
				out := kubectl(t, p, "get", "contracts", "-o", "jsonpath={range .items[*]}{.spec.revision} {.spec.resources.pods} {.status.state}{end}")
				if out != "2 7 connected" {
					return instead(out)
				}
				return ""
			})
			name := strings.TrimPrefix(strings.TrimSpace(kubectl(t, p, "get", "contracts", "-o", "name")), "contract.kith.dev/")
			kith(t, p, "contract", "verify", name)
		}
		eventually(t, 10*time.Second, "the node has the new amounts", func() string {
			if pods := kubectl(t, alice, "get", "node", "kith-bob", "-o", "jsonpath={.status.allocatable.pods}"); pods != "7" {
				return instead(pods)
			}
			return ""
		})
		kith(t, alice, "peer", "bob", "--cpu", "400m", "--wait=false")
		eventually(t, 10*time.Second, "the request arrives", func() string {
			if len(requests(t, bob)) == 0 {
				return "no request"
			}
			return ""
		})
		kith(t, bob, "decline", "alice")
		eventually(t, 10*time.Second, "alice hears why, and stays connected", func() string {
			if p := peerOf(t, alice, "bob"); p.Outgoing != "connected" || !strings.Contains(p.Why, "declined") {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
		kith(t, alice, "unpeer", "bob", "--yes")
	})
	t.Run("recognised the second time", func(t *testing.T) {
		befriend(t, alice, bob, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
		kith(t, alice, "unpeer", "bob", "--yes")
		if code := befriend(t, alice, bob, "--cpu", "200m", "--memory", "256Mi", "--pods", "5"); code != "" {
			t.Errorf("a recognised key was shown the code %q", code)
		}
		kith(t, alice, "unpeer", "bob", "--yes")
	})
	t.Run("accepted by policy", func(t *testing.T) {
		kith(t, bob, "share", "--auto-accept")
		kith(t, alice, "peer", "bob", "--cpu", "200m", "--timeout", "3m")
		kith(t, bob, "unpeer", "alice", "--yes") // this time the provider ends it
		outgoing(t, alice, "none")
	})
	t.Run("a changed key is refused, with both fingerprints", func(t *testing.T) {
		was := peerOf(t, alice, "bob").ID
		if err := bob.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := bob.Exec(t.Context(), "rm", "-r", "/var/lib/kith/identity"); err != nil {
			t.Fatal(err)
		}
		if err := bob.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		var status struct{ ID string }
		eventually(t, 30*time.Second, "bob has a new key", func() string {
			out, err := bob.Kith(t.Context(), "status", "-o", "json")
			if err != nil || json.Unmarshal([]byte(out), &status) != nil || status.ID == was {
				return fmt.Sprintf("%v %q", err, out)
			}
			return ""
		})
		eventually(t, 30*time.Second, "alice warns", func() string {
			out, err := alice.Kith(t.Context(), "events", "-o", "json")
			if err != nil || !strings.Contains(out, was) || !strings.Contains(out, status.ID) {
				return fmt.Sprintf("want %s and %s in: %s", was, status.ID, out)
			}
			return ""
		})
		list, err := peers(t, alice)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.ID == was && p.Reachable {
				t.Error("the old bob is shown reachable")
			}
			if p.ID == status.ID && p.Name == "bob" {
				t.Error("the new key took over the old name")
			}
		}
	})
}

// accept has the next request accepted.
func accept(t *testing.T, p *lab.Laptop) {
	t.Helper()
	awaitGuests(t, p)
	eventually(t, 10*time.Second, "a request arrives", func() string {
		if list := requests(t, p); len(list) > 0 {
			kith(t, p, "accept", list[0].ID, "--yes")
			return ""
		}
		return "no request"
	})
}

// outgoing waits for the state of alice's direction to bob.
func outgoing(t *testing.T, alice *lab.Laptop, state string) {
	t.Helper()
	eventually(t, 30*time.Second, "outgoing is "+state, func() string {
		if p := peerOf(t, alice, "bob"); p.Outgoing != state {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
}
