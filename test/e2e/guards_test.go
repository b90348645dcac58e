//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
	"kith.dev/test/rules"
)

// TestWhatKithRefusesKubectlRefuses tries the table of docs/guards.md both ways.
func TestWhatKithRefusesKubectlRefuses(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	w := &guarded{alice: l.Laptop("alice"), bob: l.Laptop("bob")}
	for _, p := range l.Laptops() {
		eventually(t, 2*time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, time.Minute, "alice sees bob", func() string {
		if p := peerOf(t, w.alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	apply(t, w.alice, "{apiVersion: v1, kind: Namespace, metadata: {name: lent, labels: {kith.dev/managed-by: kith}}}")
	var status struct{ ID string }
	if err := json.Unmarshal([]byte(kith(t, w.alice, "status", "-o", "json")), &status); err != nil || status.ID == "" {
		t.Fatal(err, status)
	}
	last := rules.ID[len(rules.ID)-1:]
	w.names = strings.NewReplacer("{alice}", status.ID, "{mistyped}", strings.TrimSuffix(rules.ID, last)+"Q")
	for _, r := range rules.All {
		t.Run(r.Of+" "+r.Says, func(t *testing.T) { w.try(t, r) })
	}
	cookbook, err := rules.Cookbook()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append(cookbook, rules.Good...) {
		if out, err := w.alice.KubectlInput(t.Context(), strings.NewReader(object), "apply", "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("%s: %v %s", object, err, out)
		}
	}
	t.Run("a request is answered once", w.answers)
	t.Run("what was stored before stays", w.stored)
}

type guarded struct {
	alice, bob *lab.Laptop
	names      *strings.Replacer
}

func (w *guarded) try(t *testing.T, r rules.Rule) {
	if r.Kith != "" {
		if said, refused := w.kith(t, w.names.Replace(r.Kith)); !refused || !strings.Contains(said, r.KithSays) {
			t.Errorf("%s: refused: %v, it says %q, nothing of %q", r.Kith, refused, said, r.KithSays)
		}
	}
	object := w.names.Replace(r.Object)
	_, stderr, err := w.alice.ExecInput(t.Context(), strings.NewReader(object), append(w.alice.KubectlCommand(), "apply", "-f", "-")...)
	if said := strings.Join(strings.Fields(stderr), " "); err == nil || !strings.Contains(said, r.Refusal) || !strings.Contains(said, r.By) {
		t.Errorf("%s: %v: %q, nothing of %q by %q", object, err, said, r.Refusal, r.By)
	}
}

// kith calls kith, or the local API.
func (w *guarded) kith(t *testing.T, call string) (said string, refused bool) {
	t.Helper()
	method, rest, api := strings.Cut(call, " /")
	if !api {
		_, stderr, err := w.alice.Exec(t.Context(), append([]string{"timeout", "300", "kith"}, strings.Fields(call)...)...)
		return stderr, err != nil
	}
	path, body, _ := strings.Cut(rest, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://kithd/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := local(w.alice).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), resp.StatusCode >= 400 || strings.Contains(string(text), `"error"`)
}

// answers: a yes while nothing can be granted, and a second answer.
func (w *guarded) answers(t *testing.T) {
	kith(t, w.bob, "peer", "alice", "--wait=false")
	eventually(t, time.Minute, "bob's request is there", func() string {
		if len(requests(t, w.alice)) == 0 {
			return "none"
		}
		return ""
	})
	kith(t, w.alice, "share", "off") // asked later, it would be refused at once
	var id string
	eventually(t, time.Minute, "bob's request says that nothing can be granted", func() string {
		out := kubectl(t, w.alice, "get", "peeringrequests", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.grant.refusal}{end}`)
		name, refusal, _ := strings.Cut(out, " ")
		if id = name; refusal == "" {
			return instead(out)
		}
		return ""
	})
	refuse := func(answer, says, kithSays string) {
		t.Helper()
		if said, refused := w.kith(t, "accept --yes "+id); !refused || !strings.Contains(said, kithSays) {
			t.Errorf("kith accept: %q", said)
		}
		out, err := w.alice.Kubectl(t.Context(), "patch", "peeringrequest", id, "--subresource=status", "--type=merge", "-p", `{"status":{"answer":"`+answer+`"}}`)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("answer %s: %v %s", answer, err, out)
		}
	}
	refuse("Accepted", "nothing can be granted: status.grant.refusal says why", "nothing can be granted")
	if _, err := w.alice.Kubectl(t.Context(), "patch", "peeringrequest", id, "--type=merge", "-p", `{"spec":{"peerName":"carol"}}`); err == nil || !strings.Contains(err.Error(), "a request is answered, not edited") {
		t.Errorf("a request is edited: %v", err)
	}
	kith(t, w.alice, "decline", id)
	refuse("Pending", "a request is answered once", "")
}

// stored: an object of before the rules can be changed but for what is wrong with it.
func (w *guarded) stored(t *testing.T) {
	kithd := pid(t, w.alice, "kithd")
	if _, _, err := w.alice.Exec(t.Context(), "kill", "-STOP", kithd); err != nil { // it would mend the definition at once
		t.Fatal(err)
	}
	open := `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}]`
	kubectl(t, w.alice, "patch", "crd", "peers.kith.dev", "--type=json", "-p", open)
	eventually(t, time.Minute, "an endpoint that is none is stored", func() string {
		_, err := w.alice.KubectlInput(t.Context(), strings.NewReader("{apiVersion: kith.dev/v1alpha1, kind: Peer, metadata: {name: old}, spec: {id: "+rules.ID+", endpoints: [nowhere]}}"), "apply", "-f", "-")
		if err != nil {
			return err.Error()
		}
		return ""
	})
	if _, _, err := w.alice.Exec(t.Context(), "kill", "-CONT", kithd); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the rules are there again", func() string {
		// By a dry run: what was stored once would be no change the next time, and pass.
		if _, err := w.alice.Kubectl(t.Context(), "patch", "peer", "old", "--dry-run=server", "--type=merge", "-p", `{"spec":{"endpoints":["elsewhere"]}}`); err == nil || !strings.Contains(err.Error(), "spec.endpoints[0]") {
			return fmt.Sprint(err)
		}
		return ""
	})
	kubectl(t, w.alice, "label", "peer", "old", "trust=none")
	kubectl(t, w.alice, "patch", "peer", "old", "--type=merge", "-p", `{"spec":{"displayName":"old-one"}}`)
	kubectl(t, w.alice, "patch", "peer", "old", "--subresource=status", "--type=merge", "-p", `{"status":{"endpoint":"192.0.2.1:6450"}}`)
	kubectl(t, w.alice, "patch", "peer", "old", "--type=merge", "-p", `{"spec":{"endpoints":["192.0.2.1:6450"]}}`)
	kubectl(t, w.alice, "delete", "peer", "old")
}
