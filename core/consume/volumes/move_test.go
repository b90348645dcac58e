package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/treecopy"
	"kith.dev/core/consume/remote"
)

// mover is a home whose peers have folders, and a Kubernetes that makes the volumes behind those at home.
type mover struct {
	*home
	moves   *Mover
	folders map[string]string // by peer; "" is home
	cuts    int               // how many copies break after a few frames
	wrote   int               // requests that changed something
	fails   int               // the one of them that nobody answers, with all after it; 0 for none
}

var errPower = errors.New("the laptop lost its power")

func newMover(t *testing.T, at string, pods ...client.Object) *mover {
	t.Helper()
	claim := claimAt(nodeAt(at))
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{
		v1alpha1.AnnotationStrategy: string(v1alpha1.StrategyLocalAndRemote), v1alpha1.AnnotationVolumes: string(v1alpha1.VolumesAnywhere),
	}}}
	pods = append(pods, claim, shop)
	m := &mover{home: newHome(t, pods...), folders: map[string]string{"": t.TempDir(), "bob": t.TempDir(), "carol": t.TempDir()}}
	m.fill(at)
	if _, err := m.make(); err != nil {
		t.Fatal(err)
	}
	m.behind()
	if _, err := m.make(); err != nil {
		t.Fatal(err)
	}
	// As Kubernetes binds them.
	claim = m.claimNow()
	claim.Spec.VolumeName = "pvc-2c7c6d51"
	if err := m.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	m.peers.asked = nil
	m.peers.copies = func(ctx context.Context, peer string, end remote.CopyEnd) (io.ReadWriteCloser, error) {
		m.peers.asked = append(m.peers.asked, fmt.Sprintf("copy %s %s", peer, end))
		ours, theirs := net.Pipe()
		if end == remote.CopyInto {
			go treecopy.Receive(ctx, theirs, m.folders[peer], treecopy.LimitsOf(2<<30))
		} else {
			go treecopy.Send(ctx, theirs, m.folders[peer], treecopy.Options{Still: end == remote.CopyFromStill})
		}
		if m.cuts--; m.cuts >= 0 {
			return &short{ours, 300}, nil
		}
		return ours, nil
	}
	m.restart()
	return m
}

// short is a connection that is cut after so many bytes were read.
type short struct {
	io.ReadWriteCloser
	left int
}

func (s *short) Read(p []byte) (int, error) {
	if s.left <= 0 {
		s.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := s.ReadWriteCloser.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

func nodeAt(peer string) string {
	if peer == "" {
		return "alice"
	}
	return "kith-" + peer
}

// restart is a kithd that was started anew.
func (m *mover) restart() {
	inner := m.client.(client.WithWatch)
	count := func() error {
		if m.wrote++; m.fails > 0 && m.wrote >= m.fails {
			return errPower
		}
		return nil
	}
	c := interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return errors.Join(count(), unless(m, func() error { return c.Create(ctx, o, opts...) }))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return errors.Join(count(), unless(m, func() error { return c.Delete(ctx, o, opts...) }))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return errors.Join(count(), unless(m, func() error { return c.Patch(ctx, o, p, opts...) }))
		},
	})
	was := m.home.Controller
	again := New(c, was.fresh, was.peers, was.node, was.log)
	again.events = was.events
	m.moves = NewMover(again)
}

// unless the power is lost, a request is answered.
func unless(m *mover, do func() error) error {
	if m.fails > 0 && m.wrote >= m.fails {
		return nil
	}
	return do()
}

// behind binds the claim that stands behind a volume at home, as the default class does.
func (m *mover) behind() {
	m.Helper()
	var back corev1.PersistentVolumeClaim
	err := m.client.Get(m.Context(), client.ObjectKey{Namespace: Namespace, Name: "pvc-2c7c6d51"}, &back)
	if apierrors.IsNotFound(err) || err == nil && back.Status.Phase == corev1.ClaimBound {
		return
	}
	back.Spec.VolumeName = "real"
	real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: m.folders[""]}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"alice"}}},
		}}}},
	}}
	if err := errors.Join(err, m.client.Update(m.Context(), &back)); err != nil {
		m.Fatal(err)
	}
	back.Status.Phase = corev1.ClaimBound
	if err := m.client.Status().Update(m.Context(), &back); err != nil {
		m.Fatal(err)
	}
	if err := m.client.Create(m.Context(), real); err != nil && !apierrors.IsAlreadyExists(err) {
		m.Fatal(err)
	}
}

func (m *mover) fill(at string) {
	m.Helper()
	for name, text := range map[string]string{"a": "one", "b/c": "two"} {
		path := filepath.Join(m.folders[at], name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			m.Fatal(err)
		}
	}
}

func (m *mover) claimNow() *corev1.PersistentVolumeClaim {
	m.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := m.client.Get(m.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &claim); err != nil {
		m.Fatal(err)
	}
	return &claim
}

// to has the claim's volume go to a node.
func (m *mover) to(node string) {
	m.Helper()
	claim := m.claimNow()
	if claim.Annotations[v1alpha1.AnnotationMoveTo] = node; node == "" {
		delete(claim.Annotations, v1alpha1.AnnotationMoveTo)
	}
	if err := m.client.Update(m.Context(), claim); err != nil {
		m.Fatal(err)
	}
}

// step reconciles once; it tells whether there is more to do.
func (m *mover) step() (more bool, err error) {
	m.Helper()
	before := m.pods()
	result, err := m.moves.reconcile(m.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "data"}})
	m.behind()
	return err != nil || result.RequeueAfter > 0 || m.pods() < before, err // a pod that ends brings it back
}

func (m *mover) pods() int {
	m.Helper()
	var pods corev1.PodList
	if err := m.client.List(m.Context(), &pods); err != nil {
		m.Fatal(err)
	}
	return len(pods.Items)
}

// run reconciles until nothing is left to do, through what breaks.
func (m *mover) run() {
	m.Helper()
	for range 100 {
		if more, _ := m.step(); !more {
			return
		}
	}
	m.Fatalf("it does not end: %+v", MoveOf(m.claimNow()))
}

// isAt makes sure that the volume is at a place, whole, and that nothing is left of a move.
func (m *mover) isAt(peer string) {
	m.Helper()
	claim := m.claimNow()
	if is := MoveOf(claim); is != nil && is.Phase != Failed || len(claim.Finalizers) > 0 {
		m.Errorf("%+v, %v", is, claim.Finalizers)
	}
	v := m.made()
	if v == nil || AtPeer(v) != peer || v.Spec.ClaimRef.UID != claim.UID || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || samePlaceAs(v, nowhere) {
		m.Fatalf("%+v", v)
	}
	for name, text := range map[string]string{"a": "one", "b/c": "two"} {
		if is, err := os.ReadFile(filepath.Join(m.folders[peer], name)); err != nil || string(is) != text {
			m.Errorf("%s: %q, %v", name, is, err)
		}
	}
	for i, asked := range m.peers.asked {
		if strings.HasPrefix(asked, "unclaim "+peer+" ") && !strings.Contains(strings.Join(m.peers.asked[i:], ","), "claim "+peer+" ") {
			m.Errorf("the data is deleted where it is: %v", m.peers.asked)
		}
	}
	var back corev1.PersistentVolumeClaim
	err := m.client.Get(m.Context(), client.ObjectKey{Namespace: Namespace, Name: "pvc-2c7c6d51"}, &back)
	if peer == "" && err != nil || peer != "" && !apierrors.IsNotFound(err) {
		m.Errorf("the claim behind it, which is at %q: %v", peer, err)
	}
}

func samePlaceAs(v *corev1.PersistentVolume, a *corev1.VolumeNodeAffinity) bool {
	w := v.DeepCopy()
	w.Spec.NodeAffinity = a
	return samePlace(v, w)
}

// user is a pod that has the claim; one of a controller unless alone.
func user(name string, alone bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: "alice", Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	}}}}
	if !alone {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "1", Controller: new(true)}}
	}
	return p
}

var ways = [][2]string{{"", "bob"}, {"bob", ""}, {"bob", "carol"}}

func TestAVolumeMoves(t *testing.T) {
	for _, way := range ways {
		m := newMover(t, way[0], user("db-0", false))
		m.to(nodeAt(way[1]))
		m.run()
		m.isAt(way[1])
		if m.pods() != 0 {
			t.Errorf("%v: its pod was not stopped", way)
		}
		if way[0] != "" && m.peers.asked[len(m.peers.asked)-1] != "unclaim "+way[0]+" shop/data 2c7c6d51" {
			t.Errorf("%v: what is left is not deleted: %v", way, m.peers.asked)
		}
	}
}

// Whenever the power fails, the next kithd ends what was begun, and the data is whole.
func TestAMoveSurvivesAPowerLossAtEachWrite(t *testing.T) {
	for _, way := range ways {
		for at := 1; ; at++ {
			m := newMover(t, way[0], user("db-0", false))
			m.to(nodeAt(way[1]))
			m.fails = at
			for range 30 {
				if more, _ := m.step(); !more || m.wrote >= m.fails {
					break
				}
			}
			whole := m.wrote < m.fails
			m.fails = 0
			m.restart()
			m.run()
			m.isAt(way[1])
			if whole {
				if at < 5 {
					t.Errorf("%v: only %d writes", way, at)
				}
				break
			}
		}
	}
}

// Given up after any step, the volume is whole where it was, or where it got to.
func TestAMoveIsGivenUpAfterEachStep(t *testing.T) {
	for _, way := range ways {
		arrived := false
		for steps := 1; !arrived; steps++ {
			m := newMover(t, way[0], user("db-0", false))
			m.to(nodeAt(way[1]))
			more := true
			for range steps {
				more, _ = m.step()
			}
			is := MoveOf(m.claimNow())
			m.to("")
			m.run()
			if arrived = !more || is != nil && is.Phase == Switched; arrived {
				m.isAt(way[1])
			} else {
				m.isAt(way[0])
			}
			if steps > 30 {
				t.Fatal("it never arrives")
			}
		}
	}
}

// On the way to bob it is to go to carol.
func TestAMoveLeadsElsewhere(t *testing.T) {
	m := newMover(t, "", user("db-0", false))
	m.to("kith-bob")
	for range 2 {
		if _, err := m.step(); err != nil {
			t.Fatal(err)
		}
	}
	m.to("kith-carol")
	m.run()
	m.isAt("carol")
	if !strings.Contains(strings.Join(m.peers.asked, ","), "unclaim bob shop/data") {
		t.Errorf("what was copied to bob is left: %v", m.peers.asked)
	}
}

// While the copy is cut, pods are where they were.
func TestAMoveGoesOnAfterCuts(t *testing.T) {
	for _, way := range ways {
		m := newMover(t, way[0], user("db-0", false))
		m.cuts = 4
		m.to(nodeAt(way[1]))
		m.run()
		m.isAt(way[1])
	}
}

// A peer that says again and again that it cannot begin keeps no pod from running for long.
func TestPodsAreNotStoppedForAnEndThatIsBusy(t *testing.T) {
	m := newMover(t, "bob", user("db-0", false))
	answers := m.peers.copies
	m.peers.copies = func(ctx context.Context, peer string, end remote.CopyEnd) (io.ReadWriteCloser, error) {
		if end == remote.CopyFromStill {
			return nil, &peering.Problem{Code: peering.CodeUnavailable, Message: "pod db-0 still has it"}
		}
		return answers(ctx, peer, end)
	}
	m.to("alice")
	for range 20 {
		if is := MoveOf(m.claimNow()); is != nil && is.Phase == Stopped && isNowhere(m.made()) && m.pods() == 0 {
			break
		}
		_, _ = m.step()
	}
	if more, err := m.step(); !more || err != nil || !isNowhere(m.made()) { // it waits for a moment
		t.Fatalf("%v, %v", more, err)
	}
	is := MoveOf(m.claimNow())
	is.Since = metav1.NewTime(is.Since.Add(-2 * busyMost))
	m.forge(*is)
	if _, err := m.step(); err == nil || !strings.Contains(err.Error(), "still has it") || isNowhere(m.made()) || MoveOf(m.claimNow()).Phase != Copying {
		t.Errorf("%v, %+v", err, MoveOf(m.claimNow()))
	}
	m.peers.copies = answers
	m.run()
	m.isAt("")
}

func TestAMoveThatAnEndGivesUpFails(t *testing.T) {
	m := newMover(t, "")
	if err := os.RemoveAll(m.folders["bob"]); err != nil {
		t.Fatal(err)
	}
	m.to("kith-bob")
	m.run()
	m.isAt("")
	if is := MoveOf(m.claimNow()); is == nil || is.Phase != Failed || !strings.Contains(is.Why, "no such file") {
		t.Errorf("%+v", is)
	}
	// Once somebody saw to it, it can be asked for again.
	if err := os.Mkdir(m.folders["bob"], 0o700); err != nil {
		t.Fatal(err)
	}
	claim := m.claimNow()
	delete(claim.Annotations, v1alpha1.AnnotationMove)
	if err := m.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	m.run()
	m.isAt("bob")
}

func TestAVolumeThatIsThereStays(t *testing.T) {
	m := newMover(t, "bob", user("db-0", false))
	m.to("kith-bob")
	m.run()
	m.isAt("bob")
	if claim := m.claimNow(); claim.Annotations[v1alpha1.AnnotationMoveTo] != "" || MoveOf(claim) != nil || m.pods() != 1 {
		t.Errorf("%v, %d pods", claim.Annotations, m.pods())
	}
}

func TestWhatCannotBeMovedIsSaid(t *testing.T) {
	for _, c := range []struct {
		to, why string
		pods    []client.Object
		change  func(*mover)
	}{
		{to: "kith-bob", why: "pod lonely has no controller", pods: []client.Object{user("lonely", true)}},
		{to: "kith-dave", why: "there is no such place"},
		{to: "other", why: "there is no such place"},
		{to: "kith-bob", why: "only volumes of the class kith", change: func(m *mover) {
			v := m.made()
			delete(v.Annotations, annotationProvisionedBy)
			if err := m.client.Update(m.Context(), v); err != nil {
				m.Fatal(err)
			}
		}},
		{to: "kith-bob", why: "volumes of namespace shop stay at home", change: func(m *mover) { m.namespace(v1alpha1.AnnotationVolumes, "") }},
		{to: "kith-bob", why: "volumes of namespace shop stay at home", change: func(m *mover) { m.namespace(v1alpha1.AnnotationStrategy, string(v1alpha1.StrategyLocal)) }},
		{to: "kith-bob", why: "is not offloaded to bob", change: func(m *mover) { m.namespace(v1alpha1.AnnotationPeers, "carol,dave") }},
		{to: "kith-bob", why: "3Gi of 2Gi", change: func(m *mover) {
			m.peers.claim = &peering.Problem{Code: peering.CodeForbidden, Message: "contract bob-1 would be exceeded: 3Gi of 2Gi"}
		}},
		{to: "kith-bob", why: "kithd is not there", change: func(m *mover) { m.moves.node = "other" }},
	} {
		m := newMover(t, "", c.pods...)
		if c.change != nil {
			c.change(m)
		}
		m.to(c.to)
		m.run()
		if is := MoveOf(m.claimNow()); is == nil || is.Phase != Failed || !strings.Contains(is.Why, c.why) {
			t.Errorf("%s: %+v, want %q", c.to, is, c.why)
		}
		if m.moves.node == "alice" && c.why != "only volumes of the class kith" {
			m.isAt("")
		}
	}
}

// namespace annotates the claim's.
func (m *mover) namespace(key, value string) {
	m.Helper()
	var ns corev1.Namespace
	if err := m.client.Get(m.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil {
		m.Fatal(err)
	}
	ns.Annotations[key] = value
	if err := m.client.Update(m.Context(), &ns); err != nil {
		m.Fatal(err)
	}
}

// forge has somebody who may write claims, and nothing else, write the state of a move.
func (m *mover) forge(is Move) {
	m.Helper()
	text, err := json.Marshal(is)
	if err != nil {
		m.Fatal(err)
	}
	claim := m.claimNow()
	claim.Annotations[v1alpha1.AnnotationMove] = string(text)
	if err := m.client.Update(m.Context(), claim); err != nil {
		m.Fatal(err)
	}
}

// Whoever may write a claim deletes no data by what is written on it, has none of another claim, and goes nowhere where the namespace may not go.
func TestAStateThatSomebodyWroteDoesNoHarm(t *testing.T) {
	for _, at := range []string{"", "bob"} {
		for _, is := range []Move{
			{Phase: Switched, From: nodeAt(at), To: "kith-carol"}, {Phase: Switched, From: nodeAt(at), To: nodeAt(at)},
			{Phase: Copying, From: nodeAt(at), To: nodeAt(at)}, {Phase: Stopped, From: nodeAt(at), To: nodeAt(at)},
		} {
			is.Policy = corev1.PersistentVolumeReclaimDelete
			m := newMover(t, at, user("db-0", false))
			m.forge(is)
			m.run()
			m.isAt(at)
		}
	}
	// It is not offloaded, and carol's user writes that it is half way there.
	m := newMover(t, "")
	m.namespace(v1alpha1.AnnotationVolumes, "")
	m.to("kith-bob")
	m.forge(Move{Phase: Copying, From: "alice", To: "kith-bob", Policy: corev1.PersistentVolumeReclaimDelete})
	m.run()
	m.isAt("")
	if asked := strings.Join(m.peers.asked, ","); strings.Contains(","+asked, ",claim bob") || strings.Contains(asked, "copy bob") {
		t.Errorf("bob was asked: %s", asked)
	}
}

// A claim that names the volume of another gets neither that nor its data, whatever is written on it.
func TestAnothersVolumeIsNotMoved(t *testing.T) {
	for _, is := range []Move{{Phase: Switched, From: "alice", To: "kith-bob"}, {Phase: Stopped, From: "alice", To: "kith-bob"}, {Phase: Copying, From: "alice", To: "kith-bob"}} {
		m := newMover(t, "")
		theirs := claimAt("alice")
		text, err := json.Marshal(is)
		if err != nil {
			t.Fatal(err)
		}
		theirs.Name, theirs.UID, theirs.Spec.VolumeName = "mallory", "666", "pvc-2c7c6d51"
		theirs.Annotations = map[string]string{v1alpha1.AnnotationMove: string(text), v1alpha1.AnnotationMoveTo: "kith-bob"}
		if err := m.client.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			_, _ = m.moves.reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "mallory"}})
		}
		m.isAt("")
		if len(m.peers.asked) > 0 {
			t.Errorf("%s: peers were asked: %v", is.Phase, m.peers.asked)
		}
	}
}

// A tool that replaces what is written on claims leaves no volume that pods may not have.
func TestAMoveThatIsForgottenLeavesTheVolumeWhereItIs(t *testing.T) {
	m := newMover(t, "", user("db-0", false))
	m.to("kith-bob")
	for range 20 {
		if _, err := m.step(); err != nil {
			t.Fatal(err)
		}
		if isNowhere(m.made()) {
			break
		}
	}
	if !isNowhere(m.made()) {
		t.Fatal("its pods were never stopped")
	}
	claim := m.claimNow()
	claim.Annotations, claim.Finalizers = nil, nil
	if err := m.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	m.run()
	m.isAt("")
}
