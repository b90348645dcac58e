package virtualnode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const absurd = "1e-9999999" // takes a second to parse; with one digit more it would take minutes

func TestClientsAbroadDecodeWithCare(t *testing.T) {
	bad := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":%q}}}]}}`, absurd)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "den") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		fmt.Fprint(w, bad)
	}))
	defer s.Close()
	a, err := newOffloadedPods(peerAt(t, s.URL, http.DefaultTransport))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.get(t.Context(), "shop", "web"); err == nil || !strings.Contains(err.Error(), "was not asked for") {
		t.Errorf("a Pod came: %v", err)
	}
	bad = strings.Replace(strings.Replace(bad, `"v1"`, `"kith.dev/v1alpha1"`, 1), `"Pod"`, `"OffloadedPod"`, 1)
	bad = strings.Replace(bad, `"spec":{`, `"spec":{"template":{"spec":{`, 1) + "}}"
	if _, err := a.get(t.Context(), "shop", "web"); err == nil || !strings.Contains(err.Error(), "no amount of anything") {
		t.Errorf("an absurd amount came: %v", err)
	}
	if _, err = a.get(t.Context(), "den", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
}
