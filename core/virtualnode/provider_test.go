package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kith.dev/core/api/v1alpha1"
)

// provider stands in for core/hosting in these tests: it turns the OffloadedPods of its namespaces into Pods
// of the same cluster. The rules are hosting's, without any of its checks.
type provider struct {
	core      kubernetes.Interface
	offloaded *offloadedPods
	rest      rest.Interface

	mu     sync.Mutex
	twins  map[string]bool
	paused bool
	// pretend has it only claim that its Pods run.
	pretend bool
}

func (p *provider) pause(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
}

func newProvider(t *testing.T, cfg *rest.Config) *provider {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	codecs, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	offloaded, err := newOffloadedPods(cfg, codecs, client)
	if err != nil {
		t.Fatal(err)
	}
	return &provider{core: kubernetes.NewForConfigOrDie(cfg), offloaded: offloaded, rest: offloaded.rest, twins: map[string]bool{}}
}

func (p *provider) Ensure(ctx context.Context, home string) (string, error) {
	twin := home + "-twin"
	_, err := p.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: twin}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.twins[twin] = true
	return twin, nil
}

func (p *provider) Release(ctx context.Context, home string) error {
	return p.core.CoreV1().Namespaces().Delete(ctx, home+"-twin", metav1.DeleteOptions{})
}

func (p *provider) Found(string, string, bool) {}
func (p *provider) Gone(string)                {}

// view is the stream of what is in the twins, by asking again and again.
func (p *provider) view(cfg *rest.Config) func(context.Context) (io.ReadCloser, error) {
	cfg = rest.CopyConfig(cfg)
	core := kubernetes.NewForConfigOrDie(cfg)
	return func(ctx context.Context) (io.ReadCloser, error) {
		if _, err := core.Discovery().ServerVersion(); err != nil {
			return nil, err
		}
		out, in := io.Pipe()
		go func() { in.CloseWithError(p.show(ctx, core, json.NewEncoder(in))) }()
		return out, nil
	}
}

func (p *provider) show(ctx context.Context, core kubernetes.Interface, out *json.Encoder) error {
	type line struct {
		Kind   string `json:"kind"`
		Gone   bool   `json:"gone,omitempty"`
		Object any    `json:"object,omitempty"`
	}
	told := map[string]line{}
	for synced := false; ctx.Err() == nil; synced = true {
		p.mu.Lock()
		twins := slices.Collect(maps.Keys(p.twins))
		p.mu.Unlock()
		seen := map[string]bool{}
		put := func(kind string, o metav1.Object) error {
			id := kind + "/" + o.GetNamespace() + "/" + o.GetName()
			if seen[id] = true; told[id].Object != nil && told[id].Object.(metav1.Object).GetResourceVersion() == o.GetResourceVersion() {
				return nil
			}
			told[id] = line{Kind: kind, Object: o}
			return out.Encode(told[id])
		}
		for _, twin := range twins {
			ns, err := core.CoreV1().Namespaces().Get(ctx, twin, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			pods, err1 := core.CoreV1().Pods(twin).List(ctx, metav1.ListOptions{})
			events, err2 := core.CoreV1().Events(twin).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
			list := &v1alpha1.OffloadedPodList{}
			if err := errors.Join(err, err1, err2, p.rest.Get().Namespace(twin).Resource(resource).Do(ctx).Into(list)); err != nil {
				return err
			}
			ns.Labels = map[string]string{v1alpha1.LabelHomeNamespace: strings.TrimSuffix(twin, "-twin")}
			err = put("Namespace", ns)
			for i := range list.Items {
				err = errors.Join(err, put("OffloadedPod", &list.Items[i]))
			}
			for i := range pods.Items {
				err = errors.Join(err, put("Pod", &pods.Items[i]))
			}
			for i := range events.Items {
				err = errors.Join(err, put("Event", &events.Items[i]))
			}
			if err != nil {
				return err
			}
		}
		for id, was := range told {
			if !seen[id] {
				delete(told, id)
				was.Gone = true
				if err := out.Encode(was); err != nil {
					return err
				}
			}
		}
		if !synced {
			if err := out.Encode(line{Kind: "Synced"}); err != nil {
				return err
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}

func (p *provider) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		p.mu.Lock()
		twins := make([]string, 0, len(p.twins))
		for twin := range p.twins {
			if !p.paused {
				twins = append(twins, twin)
			}
		}
		p.mu.Unlock()
		for _, twin := range twins {
			list := &v1alpha1.OffloadedPodList{}
			if err := p.rest.Get().Namespace(twin).Resource(resource).Do(ctx).Into(list); err != nil {
				continue
			}
			var group errgroup.Group
			group.SetLimit(8)
			for i := range list.Items {
				group.Go(func() error {
					if err := p.host(ctx, &list.Items[i]); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
						t.Logf("provider: %s: %v", list.Items[i].Name, err)
					}
					return nil
				})
			}
			_ = group.Wait()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *provider) host(ctx context.Context, o *v1alpha1.OffloadedPod) error {
	pods := p.core.CoreV1().Pods(o.Namespace)
	pod, err := pods.Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	there := err == nil
	switch {
	case o.DeletionTimestamp != nil && !there:
		o.Finalizers = nil
		return p.offloaded.update(ctx, o)
	case o.DeletionTimestamp != nil:
		opts := metav1.DeleteOptions{}
		if s, err := strconv.ParseInt(o.Annotations[v1alpha1.AnnotationGrace], 10, 64); err == nil {
			opts.GracePeriodSeconds = &s
		}
		return pods.Delete(ctx, o.Name, opts)
	case len(o.Finalizers) == 0:
		o.Finalizers = []string{v1alpha1.FinalizerOffloadedPod}
		return p.offloaded.update(ctx, o)
	case o.Status.Phase == v1alpha1.OffloadedPodSucceeded || o.Status.Phase == v1alpha1.OffloadedPodFailed:
		return nil
	case o.Spec.Template.Labels["forbidden"] == "yes":
		return p.status(ctx, o, v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused, Reason: "HostNetwork", Message: "not on my laptop"})
	case there && ended(&pod.Status) && pod.DeletionTimestamp == nil:
		return p.status(ctx, o, v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodPhase(pod.Status.Phase), Final: &pod.Status})
	case there:
		return nil
	}
	pod = &corev1.Pod{ObjectMeta: *o.Spec.Template.ObjectMeta.DeepCopy(), Spec: *o.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = o.Name, o.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	if p.pretend {
		pod.Spec.SchedulerName = "nobody"
	}
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if p.pretend {
		pod.Status = running()
		pod.Status.QOSClass = corev1.PodQOSBestEffort
		if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return p.status(ctx, o, v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodAccepted, PodUID: pod.UID})
}

func (p *provider) status(ctx context.Context, o *v1alpha1.OffloadedPod, s v1alpha1.OffloadedPodStatus) error {
	if o.Status.Phase == s.Phase && o.Status.PodUID == s.PodUID {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": s})
	if err != nil {
		return err
	}
	return p.rest.Patch(types.MergePatchType).Namespace(o.Namespace).Resource(resource).Name(o.Name).SubResource("status").Body(patch).Do(ctx).Error()
}

// link is a TCP relay that can be cut: then it still takes what is sent, as a network does that loses
// everything, and nobody is told.
type link struct {
	net.Listener
	target string
	mu     sync.Mutex
	cut    bool
	conns  []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{Listener: l, target: target}
	t.Cleanup(func() {
		l.Close()
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, c := range k.conns {
			c.Close()
		}
	})
	go k.serve()
	return k
}

func (k *link) serve() {
	for {
		near, err := k.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", k.target)
		if err != nil {
			near.Close()
			continue
		}
		k.mu.Lock()
		k.conns = append(k.conns, near, far)
		k.mu.Unlock()
		go k.copy(near, far)
		go k.copy(far, near)
	}
}

func (k *link) copy(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	lost := false // a stream that lost bytes is lost for good
	for {
		n, err := src.Read(buf)
		if err == io.EOF {
			if c, ok := dst.(*net.TCPConn); ok && !lost {
				_ = c.CloseWrite()
			}
			return
		} else if err != nil {
			return
		}
		k.mu.Lock()
		lost = lost || k.cut
		k.mu.Unlock()
		if !lost {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
}
