//go:build lab && soak

package e2e

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestPodsLeaveAPeerThatCannotGetTheirImage: after two minutes they run at home, where the image is.
func TestPodsLeaveAPeerThatCannotGetTheirImage(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob)
	archive, err := os.ReadFile(devImage(t, "shop/web:dev"))
	if err != nil {
		t.Fatal(err)
	}
	if _, said, err := alice.ExecInput(t.Context(), bytes.NewReader(archive), "kith", "image", "load"); err != nil {
		t.Fatal(err, said)
	}
	kubectl(t, bob, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"images":{"fromHome":"Deny"}}}`)
	kith(t, alice, "kubectl", "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"shop","name":"web"},"spec":{"selector":{"matchLabels":{"app":"left"}},
			"template":{"metadata":{"labels":{"app":"left"}},"spec":{"terminationGracePeriodSeconds":0,
			"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[{"key":"kith.dev/peer","operator":"Exists"}]}}]}},
			"containers":[{"name":"app","image":"shop/web:dev","imagePullPolicy":"IfNotPresent"}]}}}}`)
	eventually(t, 3*time.Minute, "it runs at home", func() string {
		out := kubectl(t, alice, "-n", "shop", "get", "pods", "-l", "app=left", "-o", "jsonpath={range .items[*]}{.spec.nodeName} {.status.phase} {.status.reason}{\"\\n\"}{end}")
		if strings.Contains(out, "kith-bob Failed ImageNotPulled\n") && strings.Contains(out, "alice Running") {
			return ""
		}
		return out
	})
}
