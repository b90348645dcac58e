package reflection

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/consume/remote"
)

// peerAt is the API server of a peer at a URL.
func peerAt(t testing.TB, url string) *remote.API {
	t.Helper()
	api, err := remote.NewAPI(url, http.DefaultTransport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func TestOnlyKindsThatAreSentAreDecoded(t *testing.T) {
	// Where Pods are known, this one takes a second to decode; with one digit more it would take minutes.
	answer := `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-9999999"}}}]}}`
	code := http.StatusCreated
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	a, err := newAbroad(peerAt(t, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"}}
	for what, write := range map[string]func() error{
		"create": func() error { _, err := a.create(t.Context(), kinds.ConfigMap, want); return err },
		"apply":  func() error { _, err := a.apply(t.Context(), kinds.ConfigMap, want); return err },
	} {
		if err := write(); err == nil || !strings.Contains(err.Error(), "was not asked for") {
			t.Errorf("%s: %v", what, err)
		}
	}
	code, answer = http.StatusForbidden, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403}`
	if _, err := a.create(t.Context(), kinds.ConfigMap, want); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
	code, answer = http.StatusCreated, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"site","resourceVersion":"7"}}`
	for _, write := range []func() (string, error){
		func() (string, error) { return a.create(t.Context(), kinds.ConfigMap, want) },
		func() (string, error) { return a.apply(t.Context(), kinds.ConfigMap, want) },
	} {
		if version, err := write(); err != nil || version != "7" {
			t.Errorf("an honest answer: version %q, %v", version, err)
		}
	}
}
