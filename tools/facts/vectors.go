package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// vectors writes objects in both of their forms, as the real types have them: one line for each object, its JSON and its
// protobuf in hexadecimal. Each kind is written empty and filled. A struct is filled in the first place it is met and empty in
// all others, so every field appears once and the file stays small.
func vectors(out io.Writer, order []schema.GroupVersionKind, kinds map[schema.GroupVersionKind]reflect.Type) {
	fill := &filler{met: map[reflect.Type]bool{}}
	for _, gvk := range order {
		if gvk.Kind == "Table" {
			continue // has no protobuf
		}
		vector(out, gvk, reflect.New(kinds[gvk]))
		object := reflect.New(kinds[gvk])
		fill.value(object.Elem(), 0)
		vector(out, gvk, object)
	}
	object := meta.PartialObjectMetadata{ObjectMeta: meta.ObjectMeta{Name: "a"}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"})
	raw := encoded(&object)
	event := meta.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}}
	buffer := &bytes.Buffer{}
	framer := protobuf.LengthDelimitedFramer.NewFrameWriter(buffer)
	must(protobuf.NewRawSerializer(nil, nil).Encode(&event, framer))
	line(out, "ADDED", &object, buffer.Bytes())
}

func vector(out io.Writer, gvk schema.GroupVersionKind, value reflect.Value) {
	object := value.Interface().(runtime.Object)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	line(out, gvk.Group+"/"+gvk.Version+"/"+gvk.Kind, object, encoded(object))
}

func encoded(object runtime.Object) []byte {
	buffer := &bytes.Buffer{}
	must(protobuf.NewSerializer(nil, nil).Encode(object, buffer))
	return buffer.Bytes()
}

func line(out io.Writer, name string, object any, binary []byte) {
	text, err := json.Marshal(object)
	must(err)
	fmt.Fprintf(out, "%s\t%s\t%s\n", name, text, hex.EncodeToString(binary))
}

// filler gives fields values that differ from each other.
type filler struct {
	met   map[reflect.Type]bool
	count int
}

func (f *filler) value(value reflect.Value, depth int) {
	f.count++
	switch target := value.Addr().Interface().(type) {
	case *meta.TypeMeta:
		return // outside of the message
	case *meta.Time:
		*target = meta.NewTime(time.Unix(1700000000+int64(f.count), 0).UTC())
		return
	case *meta.MicroTime:
		*target = meta.NewMicroTime(time.Unix(1700000000, int64(f.count)*1000).UTC())
		return
	case *resource.Quantity:
		*target = resource.MustParse([]string{"1500m", "2Gi", "0", "12e6"}[f.count%4])
		return
	case *intstr.IntOrString:
		*target = []intstr.IntOrString{intstr.FromInt32(-8080), intstr.FromString("50%"), intstr.FromInt32(0)}[f.count%3]
		return
	case *runtime.RawExtension:
		target.Raw = []byte(`{"b":1,"a":[null,"é"]}`)
		return
	case *meta.FieldsV1:
		target.Raw = []byte(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`)
		return
	case *apiextensions.JSON:
		target.Raw = []byte(`{"x":[1,2.5,"s",null]}`)
		return
	case *apiextensions.JSONSchemaPropsOrBool:
		target.Allows = true
		if f.count%2 == 0 && depth < 12 {
			target.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		}
		return
	case *apiextensions.JSONSchemaPropsOrArray:
		if f.count%2 == 0 {
			target.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			target.JSONSchemas = []apiextensions.JSONSchemaProps{{ID: "a"}, {}}
		}
		return
	case *apiextensions.JSONSchemaPropsOrStringArray:
		if f.count%2 == 0 {
			target.Schema = &apiextensions.JSONSchemaProps{}
		} else {
			target.Property = []string{"p", ""}
		}
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		if f.count%3 != 0 || value.Elem().Kind() == reflect.Struct {
			f.value(value.Elem(), depth+1)
		}
	case reflect.Struct:
		if f.met[value.Type()] {
			return
		}
		f.met[value.Type()] = true
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if field.IsExported() && (field.Tag.Get("json") != "-") && field.Type.Kind() != reflect.Interface {
				f.value(value.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			value.SetBytes([]byte{0, 255, byte(f.count)})
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		f.value(value.Index(0), depth+1)
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for _, key := range []string{"k/b", "k/a", "Z"} {
			element := reflect.New(value.Type().Elem()).Elem()
			f.value(element, depth+1)
			value.SetMapIndex(reflect.ValueOf(key).Convert(value.Type().Key()), element)
		}
	case reflect.String:
		value.SetString(strings.Repeat("s", 1+f.count%3) + fmt.Sprint(f.count))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		value.SetInt(int64(f.count*(1-2*(f.count%2))) << (f.count % 18))
	case reflect.Float64:
		value.SetFloat(float64(f.count) + 0.5)
	default:
		must(fmt.Errorf("no value for type %s", value.Type()))
	}
}
