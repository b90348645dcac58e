package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// kwokProgram is sigs.k8s.io/kwok, which scripts/bench.sh builds from a module of its own.
const kwokProgram = "build/kwok"

const (
	podsOnFake = 128
	fakeMark   = "kwok.x-k8s.io/node"
)

// fakeNodes is how many nodes hold so many pods, with a quarter to spare.
func fakeNodes(pods int) int { return (pods + pods/4 + podsOnFake - 1) / podsOnFake }

// fake puts nodes of kwok for so many pods into bob's cluster and keeps pods off its real one, until undo. kwok runs outside
// of the laptop's cgroup: what it computes is no work of the laptops.
func (r *rig) fake(ctx context.Context, pods int) (undo func(), err error) {
	program, err := filepath.Abs(kwokProgram)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: scripts/bench.sh builds it", err)
	}
	cmd := exec.Command(program, "--config", program+".yaml", "--kubeconfig", r.bob.Path(lab.Kubeconfig), "--cidr", "10.42.128.0/17", "--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector", fakeMark+"=fake", "--node-lease-duration-seconds", "40", "--v=ERROR")
	words, err := os.Create(program + ".log")
	if err != nil {
		return nil, err
	}
	defer words.Close()
	cmd.Stderr = words
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() { // a thread that stays: kwok dies with it
		_ = r.bob.InNetwork(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				ended <- cmd.Wait()
			}
			return nil
		})
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run kwok: %w", err)
	}
	undo = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = r.cordon(ctx, false)
		for i := range fakeNodes(pods) {
			_ = r.bob.kube.CoreV1().Nodes().Delete(ctx, fakeName(i), metav1.DeleteOptions{})
		}
		_ = cmd.Process.Kill()
		<-ended
	}
	if err := errors.Join(r.fakeReady(ctx, fakeNodes(pods)), r.cordon(ctx, true)); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

func fakeName(i int) string { return fmt.Sprintf("fake-%d", i) }

// fakeReady makes nodes of kwok and waits until each is Ready.
func (r *rig) fakeReady(ctx context.Context, wanted int) error {
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: *resource.NewQuantity(podsOnFake, resource.DecimalSI)}
	if out, err := r.bob.KubectlInput(ctx, strings.NewReader(fakeFence), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	nodes := r.bob.kube.CoreV1().Nodes()
	for i := range wanted {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fakeName(i), Annotations: map[string]string{fakeMark: "fake"},
				// The RuntimeClass of guests selects the host.
				Labels: map[string]string{corev1.LabelHostname: "bob", corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
			Status: corev1.NodeStatus{Allocatable: has, Capacity: has},
		}
		if _, err := nodes.Create(ctx, n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err := until(ctx, "kwok's nodes are Ready", func() bool {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		ready := 0
		for i := range list.Items {
			n := &list.Items[i]
			if n.Annotations[fakeMark] == "" {
				continue
			}
			if !v1alpha1.Fenced(n) { // the policy is in force a moment later
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.LabelFenced)
				_, _ = nodes.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			} else if nodeIsReady(n) && len(n.Spec.Taints) == 0 {
				ready++
			}
		}
		return err == nil && ready == wanted
	})
	return err
}

// fakeFence has the nodes of kwok keep the label by which guests may run there, which kithd takes from every node without a fence.
const fakeFence = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: bench-fenced}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [nodes], operations: [CREATE, UPDATE]}]}
  matchConditions: [{name: fake, expression: "has(object.metadata.annotations) && '` + fakeMark + `' in object.metadata.annotations"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'` + v1alpha1.LabelFenced + `': 'true'}}}"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: bench-fenced}
spec: {policyName: bench-fenced}
`

func nodeIsReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// cordon keeps new pods off bob's real node, or lets them in again.
func (r *rig) cordon(ctx context.Context, closed bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, closed)
	_, err := r.bob.kube.CoreV1().Nodes().Patch(ctx, "bob", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// thousand has a large Deployment of alice run on bob's fake nodes, and by turns the same one made at bob directly: what
// is between them is Kith alone, for no container runs. The pods mount no token: a fake node makes none for those of its own,
// while Kith makes each guest a real one of its home.
func thousand(ctx context.Context, r *rig) error { return r.thousand(ctx, false) }

// tokens is the same with a token for each guest.
func tokens(ctx context.Context, r *rig) error { return r.thousand(ctx, true) }

func (r *rig) thousand(ctx context.Context, tokens bool) error {
	undo, err := r.roomForFakes(ctx, r.fakes)
	if err != nil {
		return err
	}
	defer undo()
	away, stop, err := watchPods(ctx, r.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	direct, stop, err := watchPods(ctx, r.bob, "plain")
	if err != nil {
		return err
	}
	defer stop()
	routes := []route{{"abroad", r.alice, namespace, abroad, away}, {"direct", r.bob, "plain", "", direct}}
	what := fmt.Sprintf("Deployment of %d pods on fake nodes", r.fakes)
	if tokens {
		what += ", each guest with a token"
	}
	for i := range max(1, r.rounds/5) {
		if err := r.compare(ctx, i, routes, r.fakes, what, tokens); err != nil {
			return err
		}
	}
	if tokens {
		return ctx.Err()
	}
	return r.settled(ctx, fmt.Sprintf("after %d pods came and went", r.fakes))
}

// roomForFakes has a contract about so many pods, for which bob has fake nodes, until undo.
func (r *rig) roomForFakes(ctx context.Context, pods int) (undo func(), err error) {
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	undo, err = r.fake(ctx, pods)
	if err != nil {
		return nil, err
	}
	r.many = pods
	defer func() { r.many = 0 }()
	// What bob can offer depends on his nodes, so the contract is made now.
	if err = r.part(ctx); err == nil {
		err = r.befriend(ctx)
	}
	if err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// tenThousand has ten times as many pods of one Deployment abroad at once as thousand, and weighs both kithd while they are there.
func tenThousand(ctx context.Context, r *rig) error {
	n := 10 * r.fakes
	undo, err := r.roomForFakes(ctx, n)
	if err != nil {
		return err
	}
	defer undo()
	seen, stop, err := watchPods(ctx, r.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	seen.patience = 20 * time.Minute
	d := deployment("ten-thousand", abroad, int32(n))
	d.Spec.Template.Spec.Containers[0].Resources.Requests = small
	d.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	deployments := r.alice.kube.AppsV1().Deployments(namespace)
	began := time.Now()
	if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	took, err := seen.until(ctx, began, "all pods Ready", func(s pods) bool { return s.ready() == n })
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d pods on fake nodes", n)
	r.report.Took(what+", abroad: time until Ready", took)
	if err := r.settled(ctx, "with "+what); err != nil {
		return err
	}
	began = time.Now()
	if err := deployments.Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	took, err = seen.until(ctx, began, "all pods gone", func(s pods) bool { return len(s) == 0 })
	if err != nil {
		return err
	}
	r.report.Took(what+", abroad: deleted", took)
	return nil
}

// part ends the peering if there is one.
func (r *rig) part(ctx context.Context) error {
	if r.alice.peer(ctx, "bob").Outgoing == api.StateNone {
		return nil
	}
	if out, err := r.alice.Kith(ctx, "unpeer", "bob", "--yes"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	_, err := until(ctx, "bob is rid of alice", func() bool { return r.bob.peer(ctx, "alice").Incoming == api.StateNone })
	return err
}

// settled weighs both kithd after their work, when they had two minutes to tidy up.
func (r *rig) settled(ctx context.Context, when string) error {
	pause(ctx, 2*time.Minute)
	now, err := r.usage()
	for _, p := range programs[:2] {
		r.report.Add("memory, "+when+", "+p.role+": "+p.name, "MB", now[p].rss)
	}
	return errors.Join(err, ctx.Err())
}
