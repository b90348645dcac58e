//go:build lab && soak

package hosting_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

var plenty = amounts("cpu", "2", "memory", "2Gi", "ephemeral-storage", "10Gi", "pods", "50")

// TestHosting is the provider's side against a real Kubernetes: a laptop hosts, consumers come through the door.
func TestHosting(t *testing.T) {
	p := newProvider(t)
	p.share(v1alpha1.PodSecurityBaseline)
	for _, story := range []struct {
		name string
		tell func(*testing.T, *provider)
	}{
		{"ATwinNamespaceIsNamedFencedAndTheTenantsOwn", twinNamespaces},
		{"AGuestRunsAndItsOwnerSeesItsLogsAndExec", guestRuns},
		{"ADeletedGuestIsMadeAgain", remade},
		{"APodThatEndedForGoodStaysEnded", endedForGood},
		{"GuestsGetNoPowerOverTheHost", powerless},
		{"NoOrderOfRequestsExceedsTheContract", exceeded},
		{"AMalformedPodHarmsNobodyElse", malformed},
		{"ChangesAtHomeReachTheRunningPod", inPlace},
		{"GraceIsTheConsumersChoice", grace},
		{"ARestartOfTheDaemonRestartsNoPod", restart},
		{"TheEndOfAContractLeavesNothing", endOfContract},
	} {
		t.Run(story.name, func(t *testing.T) {
			here := *p
			here.T = t
			story.tell(t, &here)
			p.host, p.door, p.stop, p.done = here.host, here.door, here.stop, here.done
		})
	}
}

func twinNamespaces(t *testing.T, p *provider) {
	ctx := t.Context()
	bob, carol := p.newConsumer("bob", plenty), p.newConsumer("carol", plenty)
	shop := "shop-" + bob.Compact[:7]
	mine := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	for _, ns := range []*corev1.Namespace{mine, {ObjectMeta: metav1.ObjectMeta{Name: "yours-" + bob.Compact[:7]}}} {
		if err := p.admin.Create(ctx, ns); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.admin.Delete(context.Background(), ns) })
	}

	for _, c := range []struct {
		who        *consumer
		home, want string
	}{
		{bob, "shop", shop},
		{bob, "shop", shop},
		{carol, "shop", "shop-" + carol.Compact[:7]},
		{carol, "shop", "shop-" + carol.Compact[:7]},
		{bob, "mine", "mine-" + bob.Compact[:7]},
		{bob, "yours", "yours-" + bob.Compact[:14]},
		{bob, "default", "default-" + bob.Compact[:7]},
		{bob, "kube-system", "kube-system-" + bob.Compact[:7]},
	} {
		if got := c.who.twin(c.home, v1alpha1.MappingDefault); got != c.want {
			t.Errorf("%s's %s is %s here, want %s", c.who.Name, c.home, got, c.want)
		}
	}
	if _, err := carol.ensure(carol.contract, "mine", v1alpha1.MappingSameName); err == nil {
		t.Error("SameName took over a namespace of the provider's")
	}
	if _, err := carol.ensure(bob.contract, "x", v1alpha1.MappingDefault); err == nil {
		t.Error("carol used bob's contract")
	}
	if err := p.admin.Get(ctx, client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Labels) != 1 {
		t.Errorf("the provider's namespace was touched: %v, %v", mine.Labels, err)
	}
	var ns corev1.Namespace
	if err := p.admin.Get(ctx, client.ObjectKey{Name: shop}, &ns); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		v1alpha1.LabelConsumer: bob.Compact, v1alpha1.LabelConsumerName: "bob", v1alpha1.LabelHomeNamespace: "shop",
		"pod-security.kubernetes.io/enforce": "baseline",
	} {
		if ns.Labels[k] != v {
			t.Errorf("label %s is %q", k, ns.Labels[k])
		}
	}

	// What the tenant may do: its own pods and OffloadedPods, nothing else, nowhere else.
	if err := bob.client.List(ctx, &corev1.PodList{}, client.InNamespace(shop)); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"tokens":           bob.client.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace(shop)),
		"carol's secrets":  bob.client.List(ctx, &corev1.SecretList{}, client.InNamespace("shop-"+carol.Compact[:7])),
		"carol's pods":     bob.client.List(ctx, &corev1.PodList{}, client.InNamespace("shop-"+carol.Compact[:7])),
		"the owner's pods": bob.client.List(ctx, &corev1.PodList{}, client.InNamespace("kube-system")),
		"all pods":         bob.client.List(ctx, &corev1.PodList{}),
		"nodes":            bob.client.List(ctx, &corev1.NodeList{}),
		"peers":            bob.client.List(ctx, &v1alpha1.PeerList{}),
		"a plain pod": bob.client.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "x"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "kith.dev/echo:1"}}}}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.eventually(5*time.Second, "twins in the contract's status", func() bool {
		var c v1alpha1.Contract
		_ = p.admin.Get(ctx, client.ObjectKeyFromObject(bob.contract), &c)
		return len(c.Status.Namespaces) == 5 && c.Status.Namespaces[3] == v1alpha1.TwinNamespace{Home: "shop", Abroad: shop}
	})
	if there, err := p.host.ReleaseNamespace(ctx, bob.contract.Spec.ID, "shop"); err != nil || !there {
		t.Error(there, err)
	}
	p.eventually(30*time.Second, "the released namespace is gone", func() bool {
		there, err := p.host.ReleaseNamespace(ctx, bob.contract.Spec.ID, "shop") // asked again it is the same
		return err == nil && !there && apierrors.IsNotFound(p.admin.Get(ctx, client.ObjectKey{Name: shop}, &ns))
	})
}

func guestRuns(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("web", v1alpha1.MappingDefault)
	start := time.Now()
	bob.offload(ns, "one", nil)
	pod := bob.running(ns, "one")
	t.Logf("first guest of a new namespace running after %s", time.Since(start).Round(time.Millisecond))
	start = time.Now()
	bob.offload(ns, "two", nil)
	bob.running(ns, "two")
	t.Logf("second guest running after %s", time.Since(start).Round(time.Millisecond))

	if len(pod.Spec.Volumes) != 0 || pod.Spec.ServiceAccountName != "default" || pod.Labels["app"] != "one" ||
		pod.Annotations[v1alpha1.AnnotationHomePod] != "home/one" || pod.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("pod came out as %+v", pod)
	}
	p.eventually(5*time.Second, "accepted", func() bool {
		o := bob.opod(ns, "one")
		return o.Status.Phase == v1alpha1.OffloadedPodAccepted && o.Status.PodUID == pod.UID
	})

	logs, err := bob.set.CoreV1().Pods(ns).GetLogs("one", &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	if b, err := io.ReadAll(logs); err != nil || len(b) == 0 {
		t.Errorf("logs: %q, %v", b, err)
	}
	for name, exec := range map[string]func() (remotecommand.Executor, error){
		"websocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(bob.config, "GET", bob.execURL(ns, "one"))
		},
		"spdy": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(bob.config, "POST", bob.set.CoreV1().RESTClient().Post().Namespace(ns).
				Resource("pods").Name("one").SubResource("exec").VersionedParams(execOptions, scheme.ParameterCodec).URL())
		},
	} {
		e, err := exec()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
		if err != nil || strings.TrimSpace(out.String()) != "hello from home" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
	guests, err := p.host.Guests(ctx)
	if err != nil || len(guests) != 2 || guests[0].Name != "one" || guests[0].Consumer != "bob" || guests[0].Node == "" {
		t.Errorf("guests: %+v, %v", guests, err)
	}
}

var execOptions = &corev1.PodExecOptions{Command: []string{"/bin/echo", "hello", "from", "home"}, Stdout: true, Stderr: true}

func (c *consumer) execURL(ns, name string) string {
	return c.set.CoreV1().RESTClient().Get().Namespace(ns).Resource("pods").Name(name).SubResource("exec").
		VersionedParams(execOptions, scheme.ParameterCodec).URL().String()
}

func remade(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("web", v1alpha1.MappingDefault)
	bob.offload(ns, "db-0", nil)
	first := bob.running(ns, "db-0")
	start := time.Now()
	if err := p.admin.Delete(ctx, first.DeepCopy(), client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	second := bob.running(ns, "db-0")
	if second.UID == first.UID {
		t.Fatal("the same pod still")
	}
	t.Logf("deleted pod runs again after %s", time.Since(start).Round(time.Millisecond))
	p.eventually(5*time.Second, "remade once", func() bool {
		s := bob.opod(ns, "db-0").Status
		return s.Remade == 1 && s.PodUID == second.UID && s.Phase == v1alpha1.OffloadedPodAccepted
	})
	// Rejected by the kubelet, which had less room than the scheduler knew.
	rejected := second.DeepCopy()
	rejected.Status.Phase, rejected.Status.Reason = corev1.PodFailed, "OutOfcpu"
	if err := p.admin.Status().Update(ctx, rejected); err != nil {
		t.Fatal(err)
	}
	p.eventually(30*time.Second, "rejected pod remade", func() bool {
		pod := bob.pod(ns, "db-0")
		return pod != nil && pod.UID != second.UID && pod.Status.Phase == corev1.PodRunning && bob.opod(ns, "db-0").Status.Remade == 2
	})
	if used := p.host.Used(bob.contract.Spec.ID); used.Pods().Value() != 1 {
		t.Errorf("used: %v", used)
	}
}

func endedForGood(t *testing.T, p *provider) {
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("jobs", v1alpha1.MappingDefault)
	bob.offload(ns, "good", func(s *corev1.PodTemplateSpec) {
		s.Spec.RestartPolicy = corev1.RestartPolicyNever
		s.Spec.Containers[0].Command = []string{"/bin/echo", "done"}
	})
	bob.offload(ns, "bad", func(s *corev1.PodTemplateSpec) {
		s.Spec.RestartPolicy = corev1.RestartPolicyNever
		s.Spec.Containers[0].Command = []string{"/bin/cat", "/nowhere"}
	})
	for name, phase := range map[string]v1alpha1.OffloadedPodPhase{"good": v1alpha1.OffloadedPodSucceeded, "bad": v1alpha1.OffloadedPodFailed} {
		p.eventually(30*time.Second, name+" ended", func() bool { return bob.opod(ns, name).Status.Phase == phase })
		status := bob.opod(ns, name).Status
		if status.Final == nil || string(status.Final.Phase) != string(phase) || len(status.Final.ContainerStatuses) != 1 {
			t.Errorf("%s: final status %+v", name, status.Final)
		}
		if err := p.admin.Delete(t.Context(), bob.pod(ns, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.eventually(5*time.Second, "nothing used", func() bool { return len(p.host.Used(bob.contract.Spec.ID)) == 0 })
	time.Sleep(2 * time.Second)
	if bob.pod(ns, "good") != nil || bob.pod(ns, "bad") != nil {
		t.Error("a pod that had ended was made again")
	}
}

func powerless(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("evil", v1alpha1.MappingDefault)
	cases := map[string]struct {
		change func(*corev1.PodTemplateSpec)
		field  string
	}{
		"hostnetwork": {func(s *corev1.PodTemplateSpec) { s.Spec.HostNetwork = true }, "spec.hostNetwork"},
		"hostpid":     {func(s *corev1.PodTemplateSpec) { s.Spec.HostPID = true }, "spec.hostPID"},
		"hostipc":     {func(s *corev1.PodTemplateSpec) { s.Spec.HostIPC = true }, "spec.hostIPC"},
		"hostpath": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Volumes = append(s.Spec.Volumes, corev1.Volume{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, "spec.volumes[0] (root)"},
		"nfs": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Volumes = append(s.Spec.Volumes, corev1.Volume{Name: "lan", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.168.1.1", Path: "/"}}})
		}, "spec.volumes[0] (lan)"},
		"privileged": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "privileged"},
		"capabilities": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		}, "capabilities"},
		"hostport": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "hostPort"},
		"pvc": {func(s *corev1.PodTemplateSpec) {
			s.Spec.Volumes = append(s.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}})
		}, "spec.volumes[0] (data)"},
	}
	for name, c := range cases {
		bob.offload(ns, name, c.change)
	}
	for name, c := range cases {
		p.eventually(10*time.Second, name+" refused", func() bool { return bob.opod(ns, name).Status.Phase == v1alpha1.OffloadedPodRefused })
		if s := bob.opod(ns, name).Status; !strings.Contains(s.Message, c.field) {
			t.Errorf("%s: %s: %s", name, s.Reason, s.Message)
		}
		if bob.pod(ns, name) != nil {
			t.Errorf("%s: there is a pod", name)
		}
	}
	p.eventually(10*time.Second, "a warning for the consumer", func() bool {
		events, err := bob.set.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=hostpath"})
		return err == nil && len(events.Items) > 0 && events.Items[0].Type == corev1.EventTypeWarning && strings.Contains(events.Items[0].Message, "spec.volumes[0]")
	})
	// The owner trusts more: what was refused for the level is looked at again.
	p.share(v1alpha1.PodSecurityPrivileged)
	t.Cleanup(func() { p.share(v1alpha1.PodSecurityBaseline) })
	p.eventually(20*time.Second, "allowed by the changed policy", func() bool { return bob.opod(ns, "capabilities").Status.Phase == v1alpha1.OffloadedPodAccepted })
	if s := bob.opod(ns, "pvc").Status; s.Phase != v1alpha1.OffloadedPodRefused {
		t.Errorf("pvc: %+v", s)
	}
}

func exceeded(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", amounts("cpu", "1", "memory", "1Gi", "pods", "10"))
	spaces := []string{bob.twin("a", v1alpha1.MappingDefault), bob.twin("b", v1alpha1.MappingDefault), bob.twin("c", v1alpha1.MappingDefault)}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			bob.offload(spaces[i%3], fmt.Sprintf("p%02d", i), func(s *corev1.PodTemplateSpec) {
				s.Spec.Containers[0].Resources.Limits = amounts("cpu", "150m", "memory", "16Mi") // requests by default
				s.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
			})
		})
	}
	all.Wait()
	count := func() (accepted, refused int, reason string, names []client.ObjectKey) {
		for _, ns := range spaces {
			var list v1alpha1.OffloadedPodList
			if err := bob.client.List(ctx, &list, client.InNamespace(ns)); err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				switch o.Status.Phase {
				case v1alpha1.OffloadedPodAccepted:
					accepted++
					names = append(names, client.ObjectKeyFromObject(&o))
				case v1alpha1.OffloadedPodRefused:
					refused++
					reason = o.Status.Message
				}
			}
		}
		return accepted, refused, reason, names
	}
	p.eventually(30*time.Second, "all answered", func() bool { a, r, _, _ := count(); return a+r == 30 })
	accepted, _, reason, names := count()
	if accepted != 6 || !strings.Contains(reason, "cpu: the pod asks for 150m, 900m of 1 is in use") {
		t.Errorf("%d accepted of 1 CPU at 150m each: %s", accepted, reason)
	}
	if used := p.host.Used(bob.contract.Spec.ID); used.Cpu().MilliValue() != 900 || used.Pods().Value() != 6 {
		t.Errorf("used %v", used)
	}
	p.eventually(10*time.Second, "use in the contract's status", func() bool {
		var c v1alpha1.Contract
		_ = p.admin.Get(ctx, client.ObjectKeyFromObject(bob.contract), &c)
		return c.Status.Used.Cpu().MilliValue() == 900
	})
	// One goes, one of those that wait comes.
	gone := bob.opod(names[0].Namespace, names[0].Name)
	if err := bob.client.Delete(ctx, gone); err != nil {
		t.Fatal(err)
	}
	p.eventually(20*time.Second, "the place taken again", func() bool {
		a, r, _, _ := count()
		return a == 6 && r == 23
	})
	// A larger contract lets more in.
	var c v1alpha1.Contract
	if err := p.admin.Get(ctx, client.ObjectKeyFromObject(bob.contract), &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Revision, c.Spec.Resources = 2, amounts("cpu", "2", "memory", "1Gi", "pods", "10")
	if err := p.admin.Update(ctx, &c); err != nil {
		t.Fatal(err)
	}
	p.eventually(20*time.Second, "ten of ten pods", func() bool { a, r, _, _ := count(); return a == 10 && r == 19 })
}

func malformed(t *testing.T, p *provider) {
	bob, carol := p.newConsumer("bob", plenty), p.newConsumer("carol", plenty)
	bad, good := bob.twin("bad", v1alpha1.MappingDefault), carol.twin("good", v1alpha1.MappingDefault)
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"homeNamespace": "x", "homeUID": "y", "template": map[string]any{
			"spec": map[string]any{"containers": "all of them"}, "metadata": map[string]any{"labels": int64(7)},
		}},
	}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPod"))
	u.SetNamespace(bad)
	u.SetName("broken")
	if err := bob.client.Create(t.Context(), u.DeepCopy()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.template") {
		t.Errorf("at the door: %v", err)
	}
	if err := p.admin.Create(t.Context(), u); err != nil { // as if it came before there was such a door
		t.Fatal(err)
	}
	phase := func() string {
		if err := bob.client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		s, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return s
	}
	p.eventually(10*time.Second, "refused", func() bool { return phase() == "Refused" })
	p.halt()
	p.start() // the list with the broken one in it is read anew
	carol.offload(good, "fine", nil)
	carol.running(good, "fine")
	if err := bob.client.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

func inPlace(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("web", v1alpha1.MappingDefault)
	bob.offload(ns, "one", func(s *corev1.PodTemplateSpec) {
		s.Labels["track"] = "old"
		s.Annotations = map[string]string{"note": "a"}
	})
	before := bob.running(ns, "one")
	// As a controller of the provider's own might.
	if err := p.admin.Patch(ctx, before.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"zone":"here"},"annotations":{"cni":"x"}}}`))); err != nil {
		t.Fatal(err)
	}
	o := bob.opod(ns, "one")
	o.Spec.Template.Labels = map[string]string{"app": "two", "new": "yes"}
	o.Spec.Template.Annotations = nil
	o.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	o.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
	if err := bob.client.Update(ctx, o); err != nil {
		t.Fatal(err)
	}
	p.eventually(10*time.Second, "labels in step", func() bool {
		pod := bob.pod(ns, "one")
		_, old := pod.Labels["track"]
		_, note := pod.Annotations["note"]
		return pod.UID == before.UID && pod.Labels["app"] == "two" && pod.Labels["new"] == "yes" && !old && !note &&
			pod.Labels["zone"] == "here" && pod.Annotations["cni"] == "x" && pod.Spec.ActiveDeadlineSeconds != nil
	})
	if pod := bob.pod(ns, "one"); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the pod was restarted")
	}
}

func grace(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", plenty)
	ns := bob.twin("slow", v1alpha1.MappingDefault)
	stubborn := func(s *corev1.PodTemplateSpec) {
		s.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
		s.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 500}}}
	}
	for _, name := range []string{"forced", "shortened", "patient"} {
		bob.offload(ns, name, stubborn)
	}
	end := func(name, seconds string) {
		o := bob.opod(ns, name)
		if seconds != "" {
			o.Annotations = map[string]string{"kith.dev/grace-seconds": seconds}
			if err := bob.client.Update(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
		if err := bob.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) bool {
		return apierrors.IsNotFound(bob.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &v1alpha1.OffloadedPod{})) && bob.pod(ns, name) == nil
	}
	for _, name := range []string{"forced", "shortened", "patient"} {
		bob.running(ns, name)
	}
	end("forced", "0")
	p.eventually(5*time.Second, "forced", func() bool { return gone("forced") })
	end("shortened", "")
	end("patient", "")
	p.eventually(5*time.Second, "terminating", func() bool {
		pod := bob.pod(ns, "shortened")
		return pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 600 && !bob.opod(ns, "shortened").DeletionTimestamp.IsZero()
	})
	end("shortened", "1")
	p.eventually(5*time.Second, "less grace", func() bool { return *bob.pod(ns, "shortened").DeletionGracePeriodSeconds == 1 })
	end("shortened", "0") // the kubelet itself does not break off a preStop hook for less
	p.eventually(5*time.Second, "shortened", func() bool { return gone("shortened") })
	if gone("patient") {
		t.Error("the patient one did not wait")
	}
	// What is left has 600 s; the end of the contract, in the cleanup, bounds that.
	start := time.Now()
	if err := p.host.EndContract(ctx, bob.contract); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 20*time.Second || d > 70*time.Second {
		t.Errorf("ending took %s, the longest grace period then is 30 s", d)
	}
}

func restart(t *testing.T, p *provider) {
	ctx := t.Context()
	bob := p.newConsumer("bob", amounts("cpu", "1", "memory", "1Gi", "pods", "3"))
	ns := bob.twin("web", v1alpha1.MappingDefault)
	var before []*corev1.Pod
	for i := range 3 {
		bob.offload(ns, fmt.Sprintf("p%d", i), nil)
		before = append(before, bob.running(ns, fmt.Sprintf("p%d", i)))
	}
	p.halt()
	// While nobody looks: one is deleted by the owner, one by its consumer, and one too many is asked for.
	if err := p.admin.Delete(ctx, before[0].DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	bob.offload(ns, "a-newcomer", nil)
	p.start()
	again := bob.running(ns, "p0")
	if again.UID == before[0].UID {
		t.Error("p0 is the old pod")
	}
	for i := 1; i < 3; i++ {
		if pod := bob.running(ns, before[i].Name); pod.UID != before[i].UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s did not live through the restart", pod.Name)
		}
	}
	p.eventually(5*time.Second, "the newcomer refused", func() bool {
		return bob.opod(ns, "a-newcomer").Status.Phase == v1alpha1.OffloadedPodRefused
	})
	if used := p.host.Used(bob.contract.Spec.ID); used.Pods().Value() != 3 {
		t.Errorf("used: %v", used)
	}
	bob.host = p.host
}

func endOfContract(t *testing.T, p *provider) {
	ctx := t.Context()
	bob, carol := p.newConsumer("bob", plenty), p.newConsumer("carol", plenty)
	kept := carol.twin("kept", v1alpha1.MappingDefault)
	carol.offload(kept, "stays", nil)
	spaces := []string{bob.twin("x", v1alpha1.MappingDefault), bob.twin("y", v1alpha1.MappingDefault)}
	for _, ns := range spaces {
		for i := range 3 {
			bob.offload(ns, fmt.Sprintf("p%d", i), func(s *corev1.PodTemplateSpec) { s.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) })
		}
		bob.running(ns, "p2")
	}
	// A hostile consumer tries to keep its things.
	o := bob.opod(spaces[0], "p0")
	o.Finalizers = append(o.Finalizers, "bob.example/never")
	if err := bob.client.Update(ctx, o.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("a finalizer of a consumer: %v", err)
	}
	if err := p.admin.Update(ctx, o); err != nil { // as if it came before it was refused
		t.Fatal(err)
	}
	if there := p.leftOf(ctx, bob); len(there) == 0 {
		t.Fatal("nothing is found of a contract in force")
	}
	watch, err := bob.set.CoreV1().Pods(spaces[0]).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- p.host.EndContract(ctx, bob.contract) }()
	for range watch.ResultChan() {
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("the watch was cut after %s", d)
	}
	if err := bob.client.List(ctx, &corev1.PodList{}, client.InNamespace(spaces[0])); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no contract") {
		t.Errorf("the door afterwards: %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("contract ended in %s", time.Since(start).Round(time.Millisecond))
	for _, one := range p.leftOf(ctx, bob) {
		t.Errorf("left: %s", one)
	}
	if err := p.host.EndContract(ctx, bob.contract); err != nil {
		t.Error("again:", err)
	}
	if carol.running(kept, "stays") == nil {
		t.Error("carol's pod went along")
	}
	if used := p.host.Used(bob.contract.Spec.ID); len(used) > 0 {
		t.Errorf("still used: %v", used)
	}
}

// leftOf looks through every kind the API server has for what a consumer has here.
func (p *provider) leftOf(ctx context.Context, c *consumer) (left []string) {
	p.Helper()
	lists, err := discoveryOf(p).ServerPreferredResources()
	if err != nil {
		p.Fatal(err)
	}
	looked := 0
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !strings.Contains(strings.Join(r.Verbs, ","), "list") {
				continue
			}
			objects := &unstructured.UnstructuredList{}
			objects.SetAPIVersion(list.GroupVersion)
			objects.SetKind(r.Kind + "List")
			if err := p.admin.List(ctx, objects); err != nil {
				continue // kinds that can only be reviewed
			}
			looked++
			for _, o := range objects.Items {
				l := o.GetLabels()
				if l[v1alpha1.LabelConsumer] == c.Compact || l[v1alpha1.LabelContract] == c.contract.Spec.ID || strings.Contains(fmt.Sprint(o.Object["subjects"]), c.ID) {
					left = append(left, fmt.Sprintf("%s %s/%s", r.Kind, o.GetNamespace(), o.GetName()))
				}
			}
		}
	}
	if looked < 30 {
		p.Errorf("looked at %d kinds only", looked)
	}
	return left
}
