package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAppliesCountFourfold(t *testing.T) {
	for media, want := range map[string]int64{"application/json": 5, "application/merge-patch+json": 5, "application/apply-patch+yaml": 20, "Application/Apply-Patch+YAML; charset=x": 20} {
		r := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader("12345"))
		r.Header.Set("Content-Type", media)
		if got := DefaultLimits().Weight(r); got != want {
			t.Errorf("%s: five bytes count as %d, want %d", media, got, want)
		}
	}
}
