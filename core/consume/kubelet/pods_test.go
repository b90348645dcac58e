package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// podsOn is a node with a pod of each kind: one that runs, one whose init container does, one that waits, one that has ended.
func podsOn(name string, namespaces ...string) *Node {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	statuses := map[string]corev1.PodStatus{
		"run":  {ContainerStatuses: []corev1.ContainerStatus{{State: running}}},
		"init": {InitContainerStatuses: []corev1.ContainerStatus{{State: running}}, ContainerStatuses: []corev1.ContainerStatus{{}}},
		"wait": {},
		"end":  {ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}},
	}
	return &Node{Name: name, Peer: name, Log: slog.New(slog.DiscardHandler), Pods: func() (all []*corev1.Pod) {
		for _, namespace := range namespaces {
			for pod, status := range statuses { // in any order
				all = append(all, &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}, Status: status})
			}
		}
		return all
	}}
}

// kubeletOf serves the nodes on the ports 1, 2, … as New has it; nobody dials them. The API server's user may use nodes/proxy.
func kubeletOf(t *testing.T, nodes ...*Node) *Kubelet {
	t.Helper()
	home := fake.NewClientset()
	home.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "apiserver" && asked.Verb == "get" && asked.Resource == "nodes" && asked.Subresource == "proxy"
		return true, review, nil
	})
	k, err := New(Config{Home: home, HomeREST: &rest.Config{Host: "https://192.0.2.7"}, IP: netip.MustParseAddr("192.0.2.1"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.end)
	for i, n := range nodes {
		k.ports[n.Name] = int32(i + 1)
		k.Add(n)
	}
	return k
}

// asks is a request that came to a port, by a client whose certificate was verified; an empty user has none.
func asks(ctx context.Context, method, path, user string, port int) *http.Request {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{Port: port}), method, "https://192.0.2.1"+path, nil)
	r.TLS = &tls.ConnectionState{}
	if user != "" {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: user}}}}
	}
	return r
}

func TestTheNodeListsItsPods(t *testing.T) {
	k := kubeletOf(t, podsOn("kith-bob", "shop", "farm"), podsOn("kith-carol"))
	for path, want := range map[string]map[int][]string{
		"/pods":         {1: {"farm/end", "farm/init", "farm/run", "farm/wait", "shop/end", "shop/init", "shop/run", "shop/wait"}, 2: {}},
		"/runningpods/": {1: {"farm/init", "farm/run", "shop/init", "shop/run"}, 2: {}},
	} {
		for port, pods := range want {
			w := httptest.NewRecorder()
			k.handler().ServeHTTP(w, asks(t.Context(), http.MethodGet, path, "apiserver", port))
			var list corev1.PodList
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("%s at %d: %d %v %v %s", path, port, w.Code, w.Header(), err, w.Body)
			}
			got := []string{}
			for _, p := range list.Items {
				got = append(got, p.Namespace+"/"+p.Name)
				if p.Kind != "" {
					t.Errorf("%s: an item has a kind of its own, %s", path, p.Kind)
				}
			}
			if list.Kind != "PodList" || list.APIVersion != "v1" || list.Items == nil || !reflect.DeepEqual(got, pods) {
				t.Errorf("%s at %d: %s %s %v, want %v", path, port, list.Kind, list.APIVersion, got, pods)
			}
		}
	}
}

func TestPodsAreListedToNobodyElse(t *testing.T) {
	k := kubeletOf(t, podsOn("kith-bob", "shop"))
	for _, path := range []string{"/pods", "/runningpods/"} {
		for _, tc := range []struct {
			method, user string
			port, want   int
		}{
			{http.MethodGet, "apiserver", 1, http.StatusOK},
			{http.MethodGet, "stranger", 1, http.StatusForbidden},
			{http.MethodGet, "", 1, http.StatusUnauthorized},
			{http.MethodGet, "", 3, http.StatusUnauthorized}, // nor whether there is such a node
			{http.MethodGet, "apiserver", 3, http.StatusNotFound},
			{http.MethodPost, "apiserver", 1, http.StatusMethodNotAllowed},
		} {
			w := httptest.NewRecorder()
			r := asks(t.Context(), tc.method, path, tc.user, tc.port)
			r.Header.Set("Authorization", "Bearer collector")
			if k.handler().ServeHTTP(w, r); w.Code != tc.want {
				t.Errorf("%s %s by %q at port %d: %d %s, want %d", tc.method, path, tc.user, tc.port, w.Code, w.Body, tc.want)
			}
		}
	}
}

// cut takes so many bytes, and then the connection is gone.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		return 0, errors.New("connection reset")
	}
	return len(b), nil
}

func TestAListThatIsCutDoesNotEndAsIfItWereWhole(t *testing.T) {
	k := kubeletOf(t, podsOn("kith-bob", "shop"))
	for _, after := range []int{0, 70, 400} {
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("cut after %d bytes: %v", after, got)
				}
			}()
			k.handler().ServeHTTP(&cut{httptest.NewRecorder(), after}, asks(t.Context(), http.MethodGet, "/pods", "apiserver", 1))
		}()
	}
}
