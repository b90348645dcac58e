package localapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
)

// door is a Page that remembers who came.
type door struct {
	visitor Visitor
	options api.WebOptions
}

func (d *door) Open(v Visitor, options api.WebOptions) (api.Web, error) {
	d.visitor, d.options = v, options
	return api.Web{URL: "http://127.0.0.1:1/#x", Expires: time.Unix(0, 0)}, nil
}

func TestAVisitorMayCallForAsLongAsAtTheSocket(t *testing.T) {
	page, member := &door{}, true
	s := New(Options{Backend: versionOnly{}, Events: NewBroker(1), Log: quiet, Page: page})
	s.member = func(c credentials) (bool, error) { return member && c.uid == 1000, nil }
	who := &caller{credentials: credentials{uid: 1000, pid: 4711}}
	call := func(h http.Handler, method, path, body string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		h.ServeHTTP(w, r.WithContext(who.in(r.Context())))
		return w.Code
	}
	if code := call(s.authorize(s.mux), "POST", api.PathWeb, `{"readOnly":1}`); code != http.StatusBadRequest || page.visitor.API != nil {
		t.Errorf("a body that means nothing: %d", code)
	}
	if code := call(s.authorize(s.mux), "POST", api.PathWeb, `{"readOnly":true}`); code != http.StatusOK || !page.options.ReadOnly || page.visitor.UID != 1000 {
		t.Fatalf("%d, %+v", code, page)
	}
	for range 2 {
		if code := call(page.visitor.API, "GET", api.PathVersion, ""); code != http.StatusOK {
			t.Errorf("a member: %d", code)
		}
	}
	member = false
	if code := call(page.visitor.API, "GET", api.PathVersion, ""); code != http.StatusForbidden {
		t.Errorf("no member any more: %d", code)
	}
}

func TestWithoutAPageThereIsNoCallForIt(t *testing.T) {
	s := New(Options{Backend: versionOnly{}, Events: NewBroker(1), Log: quiet})
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest("POST", api.PathWeb, nil))
	if w.Code != http.StatusNotImplemented {
		t.Error(w.Code)
	}
}
