package virtualnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"kith.dev/core/wire/codec"
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
		if r.URL.Query().Has("watch") && !strings.Contains(r.URL.Path, "frames") {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, bad)
			return
		}
		fmt.Fprint(w, bad)
	}))
	defer s.Close()
	a, err := newAbroad(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.core.Pods("shop").Get(t.Context(), "web", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "no amount of anything") {
		t.Errorf("get: %v", err)
	}
	for what, list := range map[string]func() error{
		"pods":   func() error { _, err := a.core.Pods("shop").List(t.Context(), metav1.ListOptions{}); return err },
		"events": func() error { _, err := a.core.Events("shop").List(t.Context(), metav1.ListOptions{}); return err },
		"pod":    func() error { _, err := a.offloaded.get(t.Context(), "shop", "web"); return err },
	} {
		if err := list(); err == nil || !strings.Contains(err.Error(), "was asked for") {
			t.Errorf("%s: a Pod came: %v", what, err)
		}
	}
	if _, err = a.core.Pods("den").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
	if _, err = a.offloaded.get(t.Context(), "den", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
	for what, begin := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"pods": a.core.Pods("shop").Watch, "pods without frames": a.core.Pods("frames").Watch,
		"offloaded": a.offloaded.listWatch("shop").WatchFuncWithContext,
	} {
		w, err := begin(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event := <-w.ResultChan()
		w.Stop()
		if what == "pods without frames" {
			if err := apierrors.FromObject(event.Object); event.Type != watch.Error {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if o, ok := event.Object.(metav1.Object); !ok || o.GetName() != "web" || !strings.Contains(codec.Unreadable(o), "no amount of anything") {
			t.Errorf("watch of %s: %+v", what, event)
		}
	}
}

func TestHonestWatchesAreDecoded(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1500m")}}}}}}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	frame, err := json.Marshal(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: pod}})
	if err != nil {
		t.Fatal(err)
	}
	offloaded := `{"type":"ADDED","object":{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":"web"}}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "offloadedpods") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, offloaded)
			return
		}
		if accept := r.Header.Get("Accept"); accept != "application/json" || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("asked for %s, %s", accept, r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		_, _ = w.Write(append(frame, '\n'))
	}))
	defer s.Close()
	a, err := newAbroad(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, begin := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"pods": a.core.Pods("shop").Watch, "offloaded": a.offloaded.listWatch("shop").WatchFuncWithContext,
	} {
		w, err := begin(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event := <-w.ResultChan()
		w.Stop()
		if what == "pods without frames" {
			if err := apierrors.FromObject(event.Object); event.Type != watch.Error {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if o, ok := event.Object.(metav1.Object); !ok || event.Type != "ADDED" || o.GetName() != "web" {
			t.Errorf("%s: %v", what, event)
		}
	}
}
