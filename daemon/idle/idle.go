// Package idle decides whether this laptop's Kubernetes may sleep, and when it must be awake again. What it decides by is written in World.
//
// Sleeper acts upon it. It does not know who uses the cluster, which cluster.Uses counts, and reads nothing of what a user may have written
// but what Kubernetes itself goes by.
package idle

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
)

// Reason is why a cluster stays awake. The empty one: it may sleep.
type Reason string

// Reasons. Kubernetes has something to do, or somebody counts on its answers.
const (
	Pods      Reason = "Pods"      // that run or wait, here or at a peer
	Workloads Reason = "Workloads" // that have pods to make or to delete
	Ending    Reason = "Ending"    // namespaces that are being deleted
	Schedule  Reason = "Schedule"  // a CronJob that is due before the sleep would pay, or whose schedule cannot be read
	Volumes   Reason = "Volumes"   // that are on their way to or from a peer
	Nodes     Reason = "Nodes"     // that joined this laptop
	Contract  Reason = "Contract"  // that is being agreed, or ends
	Tether    Reason = "Tether"    // to or of a company
	Starting  Reason = "Starting"  // Kith's controllers do not run yet
	Connected Reason = "Connected" // a program past the front door, see Direct
)

// World is what decides.
type World struct {
	Agreed     *ledger.Snapshot
	Pods       []corev1.Pod
	Guests     []v1alpha1.OffloadedPod
	Nodes      []corev1.Node
	Namespaces []corev1.Namespace
	Jobs       []batchv1.Job
	CronJobs   []batchv1.CronJob
	Sets       []appsv1.ReplicaSet
	Stateful   []appsv1.StatefulSet
	Claims     []corev1.PersistentVolumeClaim
}

// Verdict says whether a cluster may sleep.
type Verdict struct {
	Stay  Reason
	What  string    // the object that is the reason, as kind and name; without a Stay the CronJob that Until is for
	Until time.Time // when it must be awake again; zero: not before somebody needs it
}

// early is how long before a CronJob is due its cluster is woken: as long as a slow laptop needs to start one.
const early = 15 * time.Second

// Decide says whether the cluster may sleep at now. A sleep that would be shorter than least is not worth it.
func (w *World) Decide(now time.Time, least time.Duration) Verdict {
	if v := w.agreed(); v.Stay != "" {
		return v
	}
	for _, p := range w.Pods {
		if !v1alpha1.Ended(p.Status.Phase) {
			return Verdict{Stay: Pods, What: named("pod", &p)}
		}
	}
	for _, g := range w.Guests { // one whose pod is not made yet
		if p := g.Status.Phase; p == "" || p == v1alpha1.OffloadedPodAccepted {
			return Verdict{Stay: Pods, What: named("guest", &g)}
		}
	}
	for _, c := range w.Claims {
		if m := volumes.MoveOf(&c); m != nil && m.Phase != volumes.Failed {
			return Verdict{Stay: Volumes, What: named("claim", &c)}
		}
	}
	if n := own(w.Nodes); n > 1 {
		return Verdict{Stay: Nodes, What: fmt.Sprintf("%d nodes", n)}
	}
	for _, n := range w.Namespaces {
		if n.DeletionTimestamp != nil {
			return Verdict{Stay: Ending, What: "namespace " + n.Name}
		}
	}
	if what := w.unfinished(); what != "" {
		return Verdict{Stay: Workloads, What: what}
	}
	return w.scheduled(now, least)
}

// Look reads what decides, and decides. What a cache has, as cached does of pods, is enough to stay awake; to sleep takes what the API server
// says now, as fresh does.
func Look(ctx context.Context, cached, fresh client.Reader, agreed *ledger.Snapshot, now time.Time, least time.Duration) (Verdict, error) {
	w := World{Agreed: agreed}
	var pods corev1.PodList
	if err := cached.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return Verdict{}, fmt.Errorf("read the pods: %w", err)
	}
	w.Pods = pods.Items
	if v := w.Decide(now, least); v.Stay != "" {
		return v, nil
	}
	var nodes corev1.NodeList
	var namespaces corev1.NamespaceList
	var jobs batchv1.JobList
	var crons batchv1.CronJobList
	var sets appsv1.ReplicaSetList
	var stateful appsv1.StatefulSetList
	var guests v1alpha1.OffloadedPodList
	var claims corev1.PersistentVolumeClaimList
	for _, list := range []client.ObjectList{&pods, &guests, &nodes, &namespaces, &jobs, &crons, &sets, &stateful, &claims} {
		if err := fresh.List(ctx, list); err != nil {
			return Verdict{}, fmt.Errorf("read what Kubernetes has to do: %w", err)
		}
	}
	w = World{
		Agreed: agreed, Pods: pods.Items, Guests: guests.Items, Nodes: nodes.Items, Namespaces: namespaces.Items, Jobs: jobs.Items, CronJobs: crons.Items, Sets: sets.Items, Stateful: stateful.Items,
		Claims: claims.Items,
	}
	return w.Decide(now, least), nil
}

// agreed looks at what binds this laptop to others, and others to it.
func (w *World) agreed() Verdict {
	for _, p := range w.Agreed.Peers {
		if t := p.Status.Tether; t != nil || p.Spec.Tethered != nil {
			return Verdict{Stay: Tether, What: "peer " + p.Name}
		}
		if moves(p.Status.Outgoing.State) || moves(p.Status.Incoming.State) {
			return Verdict{Stay: Contract, What: "peer " + p.Name}
		}
	}
	return Verdict{}
}

// moves reports whether something is being agreed, or ends. A contract in force keeps nobody awake: who wants to use it asks.
func moves(s v1alpha1.RelationState) bool {
	return s == v1alpha1.StateRequested || s == v1alpha1.StateContracted || s == v1alpha1.StateEnding
}

// own counts the nodes of this laptop: those of peers are pictures of what they give. What is not surely one of these counts.
func own(nodes []corev1.Node) (n int) {
	for i := range nodes {
		if nodes[i].Labels[v1alpha1.LabelPeer] == "" || !strings.HasPrefix(nodes[i].Name, v1alpha1.VirtualNodePrefix) {
			n++
		}
	}
	return n
}

// unfinished names a workload that Kubernetes has not brought to what it should be.
func (w *World) unfinished() string {
	for _, j := range w.Jobs {
		if suspended := j.Spec.Suspend != nil && *j.Spec.Suspend; !suspended && !ended(&j) {
			return named("job", &j)
		}
	}
	for _, s := range w.Sets {
		if s.Status.Replicas != wanted(s.Spec.Replicas) || s.Status.ObservedGeneration != s.Generation {
			return named("replicaset", &s)
		}
	}
	for _, s := range w.Stateful {
		if s.Status.Replicas != wanted(s.Spec.Replicas) || s.Status.ObservedGeneration != s.Generation {
			return named("statefulset", &s)
		}
	}
	return ""
}

// wanted is how many replicas there should be (k8s.io/api/apps/v1: 1 where nothing is said).
func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

func ended(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// scheduled finds the CronJob that is due first.
func (w *World) scheduled(now time.Time, least time.Duration) (first Verdict) {
	for _, j := range w.CronJobs {
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			continue
		}
		due, err := next(&j, now)
		if err != nil || due.IsZero() {
			return Verdict{Stay: Schedule, What: named("cronjob", &j)} // its controller knows better
		}
		if first.Until.IsZero() || due.Before(first.Until) {
			first = Verdict{What: named("cronjob", &j), Until: due}
		}
	}
	if first.Until.IsZero() {
		return first
	}
	if first.Until = first.Until.Add(-early); first.Until.Before(now.Add(least)) {
		return Verdict{Stay: Schedule, What: first.What}
	}
	return first
}

// next is when a CronJob is due after now, as its controller reckons: by its time zone, or that of the machine.
//
// Source: nextScheduleTime in k8s.io/kubernetes/pkg/controller/cronjob/utils.go.
func next(j *batchv1.CronJob, now time.Time) (time.Time, error) {
	schedule := j.Spec.Schedule
	if zone := j.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			return time.Time{}, fmt.Errorf("time zone of cronjob %s: %w", j.Name, err)
		}
		schedule = fmt.Sprintf("TZ=%s %s", *zone, schedule)
	}
	s, err := cron.ParseStandard(schedule)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule of cronjob %s: %w", j.Name, err)
	}
	return s.Next(now), nil
}

func named(kind string, o metav1.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
