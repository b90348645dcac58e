package company

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/local/apiproxy/doortest"
	"kith.dev/core/trust/audit"
)

// lane is a laptop's client, the door, and a real TLS upstream behind it.
type lane struct {
	*doortest.Lane
	*world
}

func newLane(t *testing.T, upstream http.HandlerFunc, objects ...client.Object) *lane {
	t.Helper()
	l := &lane{Lane: doortest.New(t, "/base", upstream)}
	l.world = newWorldAt(t, l.Config, append(objects, laptop("alice", alice, tethered))...)
	l.Open(func(w http.ResponseWriter, r *http.Request) { l.Serve(w, r, alice.String()) }, func() { l.door.Shut(alice.String()) })
	return l
}

const pods = "/company/api/v1/namespaces/team/pods"

// What a laptop's users send decides nothing about who they are.
func TestALaptopArrivesAsItselfWhateverItClaims(t *testing.T) {
	var got *http.Request
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		w.Header().Set("Warning", `299 - "old"`)
		w.Header().Set("Audit-Id", "7")
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "f")
	})
	answer := l.Do("GET", pods+"?limit=5&labelSelector=a%3Db", nil, http.Header{
		"Authorization": {"Bearer stolen"}, "Proxy-Authorization": {"Basic x"}, "Cookie": {"a=b"},
		"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Foo": {"x"}, "x-remote-uid": {"1"},
		"X-Forwarded-For": {"127.0.0.1"}, "X-Real-Ip": {"127.0.0.1"}, "Forwarded": {"for=127.0.0.1"},
		"Accept": {"application/vnd.kubernetes.protobuf"}, "Kubectl-Command": {"kubectl get"}, "X-Kith-User": {"alice"},
	})
	if got.URL.String() != "/base/api/v1/namespaces/team/pods?limit=5&labelSelector=a%3Db" {
		t.Errorf("upstream saw %s", got.URL)
	}
	want := map[string]string{
		"Authorization": "Bearer daemon-token", "Impersonate-User": UserPrefix + alice.Compact(), "Impersonate-Group": Group, asLocal: "alice",
		"Accept": "application/vnd.kubernetes.protobuf", "Kubectl-Command": "kubectl get",
	}
	for name, values := range got.Header {
		if name == "User-Agent" || name == "Accept-Encoding" {
			continue
		}
		if w, ok := want[name]; !ok || len(values) != 1 || values[0] != w {
			t.Errorf("upstream saw %s: %q", name, values)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("upstream missed %v", want)
	}
	for _, name := range []string{"Warning", "Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid"} {
		if answer.Header.Get(name) == "" {
			t.Errorf("the answer lost %s", name)
		}
	}
	if asLocal != "Impersonate-Extra-Kith.dev%2flocal-User" {
		t.Errorf("%s", asLocal)
	}
}

func TestWhatNeverReachesTheAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		header       http.Header
		code         int
		reason       audit.Reason
	}{
		"as an administrator":      {"GET", pods, http.Header{"Impersonate-User": {"system:admin"}}, 403, apiproxy.RefusedAs},
		"as a group":               {"GET", pods, http.Header{"impersonate-group": {"system:masters"}}, 403, apiproxy.RefusedAs},
		"as with an extra":         {"GET", pods, http.Header{"Impersonate-Extra-Scopes": {"x"}}, 403, apiproxy.RefusedAs},
		"as a uid":                 {"GET", pods, http.Header{"Impersonate-Uid": {"0"}}, 403, apiproxy.RefusedAs},
		"as, in an upgrade":        {"GET", pods + "/web/exec", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Impersonate-User": {"x"}}, 403, apiproxy.RefusedAs},
		"out of the path":          {"GET", "/company/../../secret", nil, 403, apiproxy.RefusedPath},
		"out of the path, encoded": {"GET", "/company/api/%2e%2e/%2e%2e/secret", nil, 403, apiproxy.RefusedPath},
		"out by slashes, encoded":  {"GET", "/company/api/..%2f..%2fsecret", nil, 403, apiproxy.RefusedPath},
		"a dot":                    {"GET", "/company/./api", nil, 403, apiproxy.RefusedPath},
		"another door's path":      {"GET", "/kube/api/v1/pods", nil, 403, apiproxy.RefusedPath},
		"a method that no API has": {"TRACE", pods, nil, 403, apiproxy.RefusedPath},
		"a body too large":         {"POST", pods, nil, 413, apiproxy.RefusedBody},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLane(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("upstream saw %s %v", r.URL, r.Header) })
			r := httptest.NewRequest(c.method, "https://peer/", nil)
			if c.code == 413 {
				r = httptest.NewRequest(c.method, "https://peer/", strings.NewReader(strings.Repeat("x", 3<<20+1)))
				r.ContentLength = -1 // it does not say
			}
			var err error
			if r.URL, err = url.ParseRequestURI(c.path); err != nil {
				t.Fatal(err)
			}
			for k, v := range c.header {
				r.Header[http.CanonicalHeaderKey(k)] = v
			}
			w := httptest.NewRecorder()
			l.Serve(w, r, alice.String())
			if s := l.Status(w.Result()); int(s.Code) != c.code || !slices.Contains(l.refused, "company/"+string(c.reason)) {
				t.Errorf("%+v, noted %v", s, l.refused)
			}
		})
	}
}

func TestOnlyTetheredLaptopsPass(t *testing.T) {
	for name, who := range map[string]string{
		"a stranger": "AAAAAAA-BBBBBBB-CCCCCCC-DDDDDDD-EEEEEEE-FFFFFFF-GGGGGGG-HHHHHHH", "an ordinary peer": bob.String(), "nobody": "",
	} {
		l := newLane(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s: upstream saw %s", name, r.URL) }, laptop("bob", bob))
		w := httptest.NewRecorder()
		l.Serve(w, httptest.NewRequest("GET", pods, nil), who)
		if s := l.Status(w.Result()); s.Code != 403 || !strings.Contains(s.Message, "not tethered") || !slices.Equal(l.refused, []string{"company/tether"}) {
			t.Errorf("%s: %+v, noted %v", name, s, l.refused)
		}
		if len(l.door.Callers()) != 0 {
			t.Errorf("%s: something is kept of it", name)
		}
	}
}

func TestLocalUsersAreNamedInOneLine(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "alice", "alice@corp.example": "alice@corp.example", "": "", strings.Repeat("a", 65): "", "a\tb": "", "älice": "", "a\u202eb": "",
	} {
		r := httptest.NewRequest("GET", pods, nil)
		r.Header[UserHeader] = []string{name}
		if got := localUser(r); got != want {
			t.Errorf("%q is passed on as %q", name, got)
		}
	}
}

// Paths that mean more than they show stay as they are written.
func TestPathsStayAsTheyAreWritten(t *testing.T) {
	var got string
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath() })
	for _, path := range []string{"/api", "/version", "/openapi/v3/apis/apps/v1", "/api/v1/namespaces/team/services/web:80/proxy/a%2Fb//c", "/apis/apps/v1/namespaces/team/deployments/web"} {
		l.Do("GET", "/company"+path, nil, nil)
		if got != "/base"+path {
			t.Errorf("%s became %s", path, got)
		}
	}
}

func TestWhatPeopleWritePasses(t *testing.T) {
	var got []byte
	var kind string
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		kind = r.Method + " " + r.Header.Get("Content-Type")
	})
	for _, c := range [][2]string{{"PATCH", "application/apply-patch+yaml"}, {"PUT", "application/json"}, {"DELETE", "application/json"}} {
		for _, size := range []int{0, 10, 3 << 20} {
			body := strings.Repeat(" ", max(0, size-2)) + `{}`[:min(2, size)]
			if resp := l.Do(c[0], pods+"/web", strings.NewReader(body), http.Header{"Content-Type": {c[1]}}); resp.StatusCode != 200 {
				t.Fatalf("%s of %d bytes: %s", c[1], size, resp.Status)
			}
			if string(got) != body || kind != c[0]+" "+c[1] {
				t.Errorf("%d bytes as %s: %d bytes as %s", size, c, len(got), kind)
			}
		}
	}
}

// What the API server would write down of unknown fields in a large body is many times its size.
func TestLargeBodiesAreNotLookedThroughForUnknownFields(t *testing.T) {
	var asked string
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { asked = r.URL.RawQuery })
	for _, method := range []string{"POST", "PUT", "PATCH"} {
		for size, want := range map[int]string{maxValidated: "fieldValidation=Strict&force=true", maxValidated + 1: "fieldValidation=Ignore&force=true"} {
			for _, query := range []string{"?fieldValidation=Strict&force=true", "?force=true&fieldValidation=Strict&fieldValidation=Warn"} {
				if strings.Contains(query, "Warn") && size == maxValidated {
					continue
				}
				l.Do(method, pods+"/web"+query, strings.NewReader(`{"a":"`+strings.Repeat("x", size-8)+`"}`), http.Header{"Content-Type": {"application/json"}})
				if asked != want {
					t.Errorf("%s of %d bytes with %s: %s", method, size, query, asked)
				}
			}
		}
	}
}

// What goes to an application behind the API server is not changed.
func TestAnApplicationGetsWhatItWasSent(t *testing.T) {
	var asked string
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { asked = r.URL.RequestURI() })
	const path = "/api/v1/namespaces/team/services/web/proxy/a%2Fb?z=1&a=2"
	if l.Do("POST", "/company"+path, strings.NewReader(strings.Repeat("x", maxValidated+1)), nil); asked != "/base"+path {
		t.Errorf("it was asked %s", asked)
	}
}

// A small body may have names so long that the paths to its fields are a thousand times as long as it is.
func TestWhatABodyWouldHaveWrittenDownIsKnownBefore(t *testing.T) {
	var asked []string
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("fieldValidation"))
	})
	nested := func(deep int, name string, inside string) string {
		return strings.Repeat(`{"`+name+`":`, deep) + "{" + inside + "}" + strings.Repeat("}", deep)
	}
	twice := strings.TrimSuffix(strings.Repeat(`"b":1,`, 1300), ",")
	for _, c := range []struct {
		what, method, body string
		want               string // "" is refused
	}{
		{"what people write", "POST", nested(12, "spec", `"image":"web:1","name":"web"`), "Strict"},
		{"repeated below a long name", "POST", nested(1, strings.Repeat("n", 7000), twice), "Ignore"},
		{"the same, as a patch", "PATCH", nested(1, strings.Repeat("n", 7000), twice), "Ignore"},
		{"nested deep", "PUT", nested(230, "a", twice), ""},
	} {
		asked = nil
		resp := l.Do(c.method, pods+"/web?fieldValidation=Strict", strings.NewReader(c.body), http.Header{"Content-Type": {"application/merge-patch+json"}})
		if c.want == "" {
			if s := l.Status(resp); s.Code != 400 || len(asked) > 0 {
				t.Errorf("%s: %d %s, asked %v", c.what, s.Code, s.Message, asked)
			}
			continue
		}
		if len(asked) != 1 || asked[0] != c.want {
			t.Errorf("%s: asked %v, want %s", c.what, asked, c.want)
		}
	}
}

// What the API server may write of an object is the square of what is in it, so there is not too much, and it is known how much.
func TestABodyHasABoundOfElements(t *testing.T) {
	var asked int
	l := newLane(t, func(http.ResponseWriter, *http.Request) { asked++ })
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`null,`, n), ",") + "]" }
	const merge, operations, yaml = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
	for _, c := range []struct {
		what, method, path, media, body string
		taken                           bool
	}{
		{"as much as may be", "PATCH", "/web", merge, list(maxElements), true},
		{"one more", "PATCH", "/web", merge, list(maxElements + 1), false},
		{"the same as a create", "POST", "", "application/json", list(maxElements + 1), false},
		{"with a deletion", "DELETE", "/web", "application/json", list(maxElements + 1), false},
		{"for an application", "POST", "/web/proxy/", "application/json", list(maxElements + 1), true},
		{"an apply", "PATCH", "/web", yaml, `{"kind":"Pod"}`, true},
		{"YAML", "PATCH", "/web", yaml, "a: &a [1, 1]\nb: [*a, *a]", false},
		{"protobuf", "POST", "", "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x04\x0a\x02\x0a\x00", true},
		{"protobuf of more", "POST", "", "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\xd2\x9c\x01" + strings.Repeat("\x0a\x00", 10025), false},
		{"protobuf in JSON's name", "POST", "", "application/json", "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod", false},
		{"operations", "PATCH", "/web", operations, `[{"op":"add","path":"/a","value":"copy"}]`, true},
		{"a copy", "PATCH", "/web", operations + "; charset=utf-8", `[{"op":"copy","OP":"add","from":"/a","path":"/b"}]`, false},
		{"an amount", "POST", "", "application/json", `{"a":["1e-999","1.5Gi","0x1e99999",1e30,"e-99999999 of these"]}`, true},
		{"an amount of hours", "POST", "", "application/json", `{"cpu":"1e-99999999"}`, false},
		{"the same as a number", "POST", "", "application/json", `{"cpu":1e-99999999}`, false},
		{"the same, hidden", "POST", "", "application/json", `{"cpu":" \u0031E-99999999","cpu":"1"}`, false},
		{"many digits", "PATCH", "/web", merge, `{"cpu":"` + strings.Repeat("1", 101) + `Ki"}`, false},
		{"in an autoscaler", "POST", "", "application/json", `{"autoscaling.alpha.kubernetes.io/metrics":"[{\"averageValue\":\"1e99999999\"}]"}`, false},
		{"no operations", "PATCH", "/web", operations, `{}`, false},
	} {
		asked = 0
		resp := l.Do(c.method, pods+c.path, strings.NewReader(c.body), http.Header{"Content-Type": {c.media}})
		switch {
		case c.taken && asked != 1:
			t.Errorf("%s: %s", c.what, resp.Status)
		case !c.taken:
			if s := l.Status(resp); s.Code != 400 || asked > 0 || !strings.HasPrefix(s.Message, "kith: request body: ") {
				t.Errorf("%s: %d %s, asked %d times", c.what, s.Code, s.Message, asked)
			}
		}
	}
}

// An upgrade has no body, and none that the API server does not speak comes to it: else its body would pass without being looked at.
func TestABodyDoesNotPassAsAnUpgrade(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the API server was asked: %s %s", r.Method, r.URL)
	})
	for what, request := range map[string]string{
		"of what nobody speaks, chunked":    "PATCH /company/api/v1/namespaces/team/configmaps/x?fieldValidation=Strict HTTP/1.1\r\nUpgrade: foo\r\nTransfer-Encoding: chunked\r\n",
		"of WebSocket, chunked":             "PATCH /company/api/v1/namespaces/team/configmaps/x HTTP/1.1\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n",
		"of SPDY, with a body":              "POST /company/api/v1/namespaces/team/pods/x/exec HTTP/1.1\r\nUpgrade: SPDY/3.1\r\nContent-Length: 5\r\n",
		"of SPDY, where nothing speaks it":  "POST /company/api/v1/namespaces/team/pods HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n",
		"of two":                            "GET /company/api/v1/namespaces/team/pods/x/exec HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: foo\r\n",
		"of HTTP/2":                         "GET /company/api/v1/namespaces/team/pods HTTP/1.1\r\nUpgrade: h2c\r\n",
		"of WebSocket, where nothing flows": "GET /company/api/v1/namespaces/team/pods/x HTTP/1.1\r\nUpgrade: websocket\r\n",
	} {
		conn := l.Dial()
		fmt.Fprintf(conn, "%sHost: kith\r\nConnection: Upgrade\r\n\r\n", request)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // the body never ends
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if s := l.Status(resp); s.Code != 400 || !strings.Contains(s.Message, "upgrade to") {
			t.Errorf("%s: %d %s", what, s.Code, s.Message)
		}
		conn.Close()
	}
}

// A body that comes slowly is this side's to wait for, not the API server's.
func TestASlowBodyDoesNotReachTheAPIServer(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { t.Error("the API server was asked") })
	l.door.Limits.Timeout = 100 * time.Millisecond
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("{")) }()
	if s := l.Status(l.Do("POST", pods, r, http.Header{"Content-Type": {"application/json"}})); s.Code != 413 || !strings.Contains(s.Message, "in time") {
		t.Errorf("%+v", s)
	}
}

func TestUpgradesPassAndCarryNoTokens(t *testing.T) {
	newLane(t, doortest.Streams(nil)).UpgradesCarryNoTokens(pods, UserPrefix+alice.Compact())
}

func TestTheEndOfATetherCutsWhatIsOpen(t *testing.T) {
	var gone sync.WaitGroup
	gone.Add(2)
	l := newLane(t, doortest.Streams(&gone))
	l.EndCutsAll(pods, &gone, "not tethered", func() {
		if err := l.EndTether(t.Context(), caller(alice)); err != nil {
			t.Fatal(err)
		}
		l.reconcile("alice")
	})
	// The next tether begins with a limiter of its own.
	p := l.peer("alice")
	l.change(p, func() { p.Spec.Tethered, p.Spec.Request = &v1alpha1.Tethered{}, &v1alpha1.ResourceRequest{Attempt: 2} })
	if resp := l.Do("GET", pods, nil, nil); resp.StatusCode != 200 {
		t.Errorf("after the next tether: %s", resp.Status)
	}
}

func TestLimitsOfALaptop(t *testing.T) {
	var gone sync.WaitGroup
	gone.Add(3)
	l := newLane(t, doortest.Streams(&gone))
	l.door.Limits.Streams, l.door.Limits.Bodies, l.door.Limits.Body = 3, 100, 90
	for range 3 {
		if resp := l.Do("GET", pods+"?watch=1", nil, nil); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	if s := l.Status(l.Do("GET", pods+"?watch=1", nil, nil)); s.Code != 429 || s.Details.RetryAfterSeconds != 1 {
		t.Errorf("%+v", s)
	}
	// An apply costs the API server more than its bytes say.
	if s := l.Status(l.Do("PATCH", pods+"/web", strings.NewReader(strings.Repeat("x", 30)), http.Header{"Content-Type": {"application/apply-patch+yaml"}})); s.Code != 429 {
		t.Errorf("%+v", s)
	}
	// Deletions of many wait for their turn as lists do.
	for path, many := range map[string]bool{pods: true, pods + "/web": false} {
		if info, no := parse(httptest.NewRequest("DELETE", path, nil)); no != nil || info.List != many {
			t.Errorf("%s: %+v %+v", path, info, no)
		}
	}
	l.door.Shut(alice.String())
	gone.Wait()
}

// All that one laptop may have open is less than what the peer API lets one caller have.
func TestTheDoorIsNarrowerThanThePeerAPI(t *testing.T) {
	if l := limits(); l.Requests+l.Streams >= 512 {
		t.Errorf("%+v", l)
	}
}

func TestRefusalsOfTheAPIServerAreNotedAndPassedOn(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","code":403,"message":"pods is forbidden"}`)
	})
	if s := l.Status(l.Do("GET", pods, nil, nil)); s.Message != "pods is forbidden" || !slices.Equal(l.refused, []string{"company/forbidden"}) {
		t.Errorf("%+v, noted %v", s, l.refused)
	}
}

func TestWhoIsForbiddenIsToldWhereHeMayWork(t *testing.T) {
	forbidden := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","code":403,"message":"no"}`)
	}
	many := func(s *v1alpha1.TetherPolicySpec) {
		for i := range 10 {
			in(fmt.Sprintf("n%d", i), "edit")(s)
		}
	}
	const two = `299 - "this laptop is tethered: its users work in team (edit), box-alice (admin); name one with --namespace"`
	for name, c := range map[string]struct {
		path   string
		policy []client.Object
		says   string
	}{
		"another namespace":      {"/company/api/v1/namespaces/default/pods", []client.Object{policy("p", in("team", "edit"), in("box-{laptop}", "admin"))}, two},
		"a kind of a group":      {"/company/apis/apps/v1/namespaces/default/deployments/web", []client.Object{policy("p", in("team", "edit"), in("box-{laptop}", "admin"))}, two},
		"the whole cluster":      {"/company/api/v1/nodes", []client.Object{policy("p", in("team", "edit"), in("box-{laptop}", "admin"))}, two},
		"a quota of its own":     {pods, []client.Object{policy("p", in("team", "edit"))}, ""},
		"a namespace of its own": {"/company/api/v1/namespaces/team", []client.Object{policy("p", in("team", "edit"))}, ""},
		"more than can be read":  {"/company/api/v1/nodes", []client.Object{policy("p", many)}, "n7 (edit), and 2 more;"},
		"a policy that is gone":  {pods, nil, "no TetherPolicy of this cluster gives"},
		"a policy of no place":   {pods, []client.Object{policy("p")}, "no TetherPolicy of this cluster gives"},
		"a quote in a role":      {pods, []client.Object{policy("p", in("box", "a\"b"))}, `box (a\"b)`},
	} {
		l := newLane(t, forbidden, c.policy...)
		answer := l.Do("GET", c.path, nil, nil)
		if said := answer.Header.Get("Warning"); (said == "") != (c.says == "") || !strings.Contains(said, c.says) || l.Status(answer).Message != "no" {
			t.Errorf("%s: %q", name, said)
		}
	}
}
