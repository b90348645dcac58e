package keys

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kith-system", Name: "keys"}, Data: data}
}

func TestKeysAreMadeOnceAndKeptInTheSecret(t *testing.T) {
	all := fake.NewClientset(secret(nil))
	secrets := all.CoreV1().Secrets("kith-system")
	me, tunnel, err := readSecret(t.Context(), secrets, "keys")
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := readSecret(t.Context(), secrets, "keys")
	if err != nil || again.ID() != me.ID() || same != tunnel || tunnel.IsZero() {
		t.Errorf("another start has %s, had %s; %v", again.ID(), me.ID(), err)
	}
	writes := 0
	for _, a := range all.Actions() {
		if a.GetVerb() != "get" {
			writes++
		}
	}
	if writes != 1 {
		t.Errorf("written %d times", writes)
	}
}

func TestWhoIsFasterHasItsKeysKept(t *testing.T) {
	all := fake.NewClientset(secret(nil))
	theirs := secret(nil)
	if _, err := complete(theirs); err != nil {
		t.Fatal(err)
	}
	first := true
	all.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		if err := all.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, theirs, "kith-system"); err != nil {
			t.Fatal(err)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "keys", nil)
	})
	_, tunnel, err := readSecret(t.Context(), all.CoreV1().Secrets("kith-system"), "keys")
	if err != nil || string(tunnel.Reveal()) != string(theirs.Data[wireguardKey]) {
		t.Errorf("not theirs: %v", err)
	}
}

func TestADamagedKeyIsNeverReplaced(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"identity.key": {identityKey: []byte("?")}, "wireguard.key": {wireguardKey: []byte("?")},
	} {
		all := fake.NewClientset(secret(data))
		_, _, err := readSecret(t.Context(), all.CoreV1().Secrets("kith-system"), "keys")
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		is, err := all.CoreV1().Secrets("kith-system").Get(context.Background(), "keys", metav1.GetOptions{})
		if err != nil || string(is.Data[name]) != "?" {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	if _, _, err := readSecret(t.Context(), fake.NewClientset().CoreV1().Secrets("kith-system"), "keys"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
