package door

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/wire/wiretest"
)

func TestTheDoorHasAConsumersObjectsCounted(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	l.list.most = Stored{Objects: 10, Bytes: 1000}
	l.door.Recount = time.Hour
	path := "/kube/api/v1/namespaces/shop/configmaps"
	for i := range 10 {
		if resp := l.Do("POST", path, strings.NewReader("{}"), nil); resp.StatusCode != 201 {
			t.Fatalf("object %d: %s", i, resp.Status)
		}
	}
	l.list.mu.Lock()
	l.list.has = Stored{Objects: 10, Bytes: 20}
	l.list.mu.Unlock()
	if s := l.Status(l.Do("POST", path, strings.NewReader("{}"), nil)); s.Code != 403 || !strings.Contains(s.Message, "10 objects with 20 bytes of yours are kept here") {
		t.Errorf("object 11: %+v", s)
	}
	if resp := l.Do("PUT", path+"/a", strings.NewReader("{}"), nil); resp.StatusCode != 201 {
		t.Errorf("a change: %s", resp.Status)
	}
	if s := l.Status(l.Do("PUT", path+"/a", strings.NewReader("{}"+strings.Repeat(" ", 1001)), nil)); s.Code != 403 {
		t.Errorf("a change that is too large: %+v", s)
	}
	if resp := l.Do("DELETE", path+"/a", nil, nil); resp.StatusCode != 201 {
		t.Errorf("a deletion: %s", resp.Status)
	}
	l.list.mu.Lock()
	defer l.list.mu.Unlock()
	if l.list.counted > 2 || l.list.refused[RefusedFull] != 2 {
		t.Errorf("counted %d times, refused %v", l.list.counted, l.list.refused)
	}
}

func TestAnEstimateRefusesNobodyWhoHasRoom(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	l.list.most = Stored{Objects: 10, Bytes: 100}
	l.door.Recount = time.Nanosecond
	for i := range 100 { // what is replaced does not add up
		if resp := l.Do("PUT", "/kube/api/v1/namespaces/shop/configmaps/a", strings.NewReader("{        }"), nil); resp.StatusCode != 200 {
			t.Fatalf("change %d: %s", i, resp.Status)
		}
	}
}

func TestBodiesUnderWayAreBounded(t *testing.T) {
	const path = "/kube/api/v1/namespaces/shop/configmaps"
	arrived, held := make(chan struct{}), make(chan struct{})
	l := newLane(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-held })
	l.door.Limits.Bodies = 100
	var done sync.WaitGroup
	done.Go(func() { l.Do("POST", path, strings.NewReader("{}"+strings.Repeat(" ", 78)), nil) })
	<-arrived
	if s := l.Status(l.Do("POST", path, strings.NewReader(strings.Repeat("x", 21)), nil)); s.Code != 429 || !strings.Contains(s.Message, "bodies") {
		t.Errorf("%+v", s)
	}
	close(held)
	done.Wait()
}

// FuzzBody has a consumer send any body: what passes costs the API server no more than the rule says.
func FuzzBody(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"a":"b"}},"data":{"a":"b"}}`, `{"spec":{"ports":[{"port":1}]}}`,
		`{"endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a","port":1}]}`, `{"spec":{"template":{"spec":{"containers":[{"env":[{}]}]}}}}`,
	} {
		for i := range byte(len(kinds.Written())) {
			f.Add(i, false, []byte(text))
			f.Add(i, true, []byte(text))
		}
	}
	resources := slices.Sorted(maps.Keys(contents))
	f.Fuzz(func(t *testing.T, which byte, patch bool, body []byte) {
		info, method, media := apiproxy.Info{Resource: resources[int(which)%len(resources)]}, http.MethodPost, "application/json"
		if patch {
			method, media = http.MethodPatch, "application/apply-patch+yaml"
		}
		var err error
		wiretest.Within(t, len(body), func() { _, err = checkBody(info, method, media, body) })
		if err == nil {
			wiretest.Within(t, len(body), func() { _ = Read(body, into(info.Resource, patch)) })
		}
	})
}

// into is what the API server decodes a body into.
func into(resource string, patch bool) any {
	i := slices.IndexFunc(kinds.Written(), func(k *kinds.Kind) bool { return k.Resource.Resource == resource })
	if k := kinds.Written()[i]; !patch && !k.Custom() {
		return k.New()
	}
	return new(map[string]any)
}
