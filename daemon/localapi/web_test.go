package localapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
	page := &door{}
	var member atomic.Bool
	member.Store(true)
	s := New(Options{Backend: versionOnly{}, Events: NewBroker(1), Log: quiet, Page: page})
	s.member = func(c credentials) (bool, error) { return member.Load() && c.uid == 1000, nil }
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
	server := httptest.NewServer(page.visitor.API)
	defer server.Close()
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(patient, "GET", server.URL+api.PathEvents+"?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	member.Store(false)
	if code := call(page.visitor.API, "GET", api.PathVersion, ""); code != http.StatusForbidden {
		t.Errorf("no member any more: %d", code)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream goes on: %v", err)
	}
	member.Store(true)
	if code := call(page.visitor.API, "GET", api.PathVersion, ""); code != http.StatusOK {
		t.Errorf("a member again: %d", code)
	}
}

func TestTheGroupOfAProcessOpensNoPage(t *testing.T) {
	page := &door{}
	s := New(Options{Backend: versionOnly{}, Events: NewBroker(1), Log: quiet, Page: page, Group: "kith"})
	s.member = func(c credentials) (bool, error) { return c.gid == 77, nil }
	who := &caller{credentials: credentials{uid: 1000, gid: 77, pid: 4711}}
	for path, want := range map[string]int{"GET " + api.PathVersion: http.StatusOK, "POST " + api.PathWeb: http.StatusForbidden} {
		method, at, _ := strings.Cut(path, " ")
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, at, nil)
		s.authorize(s.mux).ServeHTTP(w, r.WithContext(who.in(r.Context())))
		if w.Code != want || page.visitor.API != nil {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
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
