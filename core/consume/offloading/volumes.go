package offloading

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// In a namespace whose volumes may be anywhere, the scheduler chooses a node for a pod with claims as for any other, and then it is too late to
// find out that a claim's class makes volumes at home only: so the claims of such a namespace are of the class kith.

// volumesOf are the variables that tell of the namespace of a claim, and of its class.
var volumesOf = []admissionv1.Variable{
	{Name: "volumes", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationVolumes, v1alpha1.AnnotationVolumes)},
	{Name: "default", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationDefaultClass, v1alpha1.AnnotationDefaultClass)},
	{Name: "class", Expression: `has(object.spec.storageClassName) ? object.spec.storageClassName : variables.default`},
	// With "" Kubernetes makes no volume, and one that the claim names is where it is.
	{Name: "made", Expression: `!(has(object.spec.storageClassName) && object.spec.storageClassName == "") && !(has(object.spec.volumeName) && object.spec.volumeName != "")`},
}

// volumesPolicy gives claims without a class, which the API server has given the default class, the class kith.
func volumesPolicy() *admissionv1.MutatingAdmissionPolicy {
	p := mutating(VolumesPolicyName, metav1.LabelSelectorOpIn, core("persistentvolumeclaims"), admissionv1.Create)
	p.Spec.Variables = volumesOf
	p.Spec.Mutations = []admissionv1.Mutation{patch(`variables.volumes == "" || !variables.made || variables.class != variables.default ? [] :
  [JSONPatch{op: "add", path: "/spec/storageClassName", value: "` + v1alpha1.StorageClassName + `"}]`)}
	return p
}

// volumesRefusal refuses claims of classes that make volumes at home only.
func volumesRefusal() *admissionv1.ValidatingAdmissionPolicy {
	const kith = v1alpha1.StorageClassName
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: VolumesPolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matching(metav1.LabelSelectorOpIn, core("persistentvolumeclaims"), admissionv1.Create),
			Variables:        volumesOf,
			Validations: []admissionv1.Validation{{
				Expression: `variables.volumes == "" || !variables.made || variables.class == "` + kith + `" || variables.class.startsWith("` + kith + `-")`,
				MessageExpression: `"spec.storageClassName: volumes of namespace " + request.namespace + " may be at peers, and those of class " + variables.class + " cannot: ` +
					`name the class ` + kith + `, or none"`,
				Reason: new(metav1.StatusReasonForbidden),
			}},
			FailurePolicy: new(admissionv1.Fail),
		},
	}
}

func volumesRefusalBinding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: VolumesPolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: VolumesPolicyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

// StaysHome are the claims of a namespace whose volumes could not follow pods anywhere, by name: of another class, without a volume yet, or with
// one that says of no node that it is there. volumes are those of the cluster.
func StaysHome(claims []corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume, classes []storagev1.StorageClass) (names []string) {
	kith := map[string]bool{}
	for i := range classes {
		kith[classes[i].Name] = classes[i].Provisioner == v1alpha1.StorageProvisioner
	}
	placed := map[string]bool{}
	for i := range volumes {
		placed[volumes[i].Name] = volumes[i].Spec.NodeAffinity != nil && volumes[i].Spec.NodeAffinity.Required != nil
	}
	for i := range claims {
		c := &claims[i]
		if !placed[c.Spec.VolumeName] && (c.Spec.StorageClassName == nil || !kith[*c.Spec.StorageClassName]) {
			names = append(names, c.Name)
		}
	}
	return names
}
